"""What the names in models, routes and rules stand for: resolved down to upstreams, or told why not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from dabom.gateway.routing import AUTO, target_name
from dabom.gateway.routing.settings import RouteSettings, RoutingSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dabom.gateway import UpstreamSettings
    from dabom.gateway.routing.settings import AutoRule

Place = tuple[str | int, ...]
Steps = tuple[tuple[str, ...], ...]
_SHOWN_NAMES = 12


@dataclass
class Names:
    """All names of a configuration.

    In a step of a route a name is an upstream, else a route, else a model: so a route `a: [a, b]` may begin
    with the upstream of its own name. Everywhere else it is a route, else an upstream, else a model, else the
    name by which an upstream knows its model. `flaws` are the places of what cannot be resolved, and why.
    """

    upstreams: Sequence[UpstreamSettings]
    routing: RoutingSettings
    flaws: list[tuple[Place, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._upstreams = [target_name(one) for one in self.upstreams]
        self._circles: set[frozenset[str]] = set()
        self._served = {one.model for one in self.upstreams if one.model}

    def resolve(self) -> RoutingSettings:
        """The same, but steps hold upstreams only, and no model stands for a model."""
        self._find_twins()
        routing = self.routing
        for section, names in (("models", routing.models), ("routes", routing.routes)):
            for name in sorted(names.keys() & AUTO.keys()):
                told = f"{name} is a name of the gateway's own, with the rules of `auto`; choose another"
                self._fault((section, name), told)
        routes = {
            name: RouteSettings(steps=self._route(name, ()) or one.steps, max_pixels=one.max_pixels)
            for name, one in routing.routes.items()
        }
        models = {name: self._model(name, ()) or meant for name, meant in routing.models.items()}
        for number, rule in enumerate(routing.auto):
            self._look_up(rule.route, ("auto", number, "route"))
        if routing.default_route is not None:
            self._look_up(routing.default_route, ("default_route",))
        return routing.model_copy(update={"routes": routes, "models": models})

    def _fault(self, place: Place, message: str) -> None:
        if (place, message) not in self.flaws:
            self.flaws.append((place, message))

    def _circle(self, names: tuple[str, ...], place: Place) -> None:
        """Tell of a circle, once: each name in it would come to it."""
        if frozenset(names) not in self._circles:
            self._circles.add(frozenset(names))
            self._fault(place, f"{' -> '.join(names)} goes in a circle")

    def _find_twins(self) -> None:
        for name, count in Counter(self._upstreams).items():
            if count > 1:
                last = len(self._upstreams) - 1 - self._upstreams[::-1].index(name)
                told = f"two upstreams are called {name}; give each a name of its own"
                self._fault(("upstreams", last), told)

    def _route(self, name: str, above: tuple[str, ...]) -> Steps:
        steps: list[tuple[str, ...]] = []
        for number, step in enumerate(self.routing.routes[name].steps):
            place: Place = ("routes", name, "steps", number)
            if len(step) == 1:
                steps += self._expanded(step[0], (*place, 0), (*above, name))
                continue
            replicas: list[str] = []
            for at, one in enumerate(step):
                found = self._expanded(one, (*place, at), (*above, name))
                if len(found) > 1:
                    self._fault(
                        (*place, at), f"{one} has several steps; it cannot be one of several replicas"
                    )
                replicas += found[0] if found else ()
            steps.append(tuple(dict.fromkeys(replicas)))
        return tuple(steps)

    def _expanded(self, name: str, place: Place, above: tuple[str, ...]) -> Steps:
        """The steps that a name in a step of a route stands for."""
        if name in self._upstreams:
            return ((name,),)
        if name in above:
            self._circle((*above[above.index(name) :], name), place)
            return ()
        if name in self.routing.routes:
            return self._route(name, above)
        if name in self.routing.models:
            meant = self._model(name, above)
            return self._expanded(meant, place, (*above, name)) if meant else ()
        self._unknown(name, place)
        return ()

    def _model(self, name: str, above: tuple[str, ...]) -> str | None:
        """The route, the upstream or the served name that a model stands for."""
        meant, place = self.routing.models[name], ("models", name)
        if meant in self.routing.routes or meant in self._upstreams or meant in self._served:
            return meant
        if meant in self.routing.models:
            if meant in (*above, name):
                self._circle((*above, name, meant), place)
                return None
            return self._model(meant, (*above, name))
        self._unknown(meant, place)
        return None

    def _look_up(self, name: str, place: Place) -> None:
        known = (*self._upstreams, *self.routing.routes, *self.routing.models, *self._served)
        if name not in known:
            self._unknown(name, place)

    def _unknown(self, name: str, place: Place) -> None:
        known = list(dict.fromkeys((*self._upstreams, *self.routing.routes, *self.routing.models)))
        meant = get_close_matches(name, known, n=1)
        shown = ", ".join(known[:_SHOWN_NAMES]) or "none"
        hint = f"did you mean {meant[0]}?" if meant else f"the names are {shown}"
        self._fault(place, f"no upstream, route or model is called {name}; {hint}")


def idle_rules(rules: Sequence[AutoRule]) -> list[tuple[int, int]]:
    """Rules that no request reaches, each with the earlier rule that takes all of its requests."""
    return [
        (late, early)
        for late, rule in enumerate(rules)
        if (early := next((at for at in range(late) if _covers(rules[at], rule)), None)) is not None
    ]


def _covers(early: AutoRule, late: AutoRule) -> bool:
    return _wider(early.modalities, late.modalities) and _wider(early.tasks, late.tasks)


def _wider(one: frozenset[str] | None, other: frozenset[str] | None) -> bool:
    return one is None or (other is not None and other <= one)
