"""Where a request goes: the name of a model, or the rules of `auto`, become steps of targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from dabom.errors import ModalityNotServed, ModelNotFound
from dabom.gateway.routing.need import AUTO, TEXT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dabom.gateway.routing.need import Need, Target
    from dabom.gateway.routing.settings import AutoRule, RoutingSettings

Steps = tuple[tuple[str, ...], ...]
Reason = Literal["only", "model", "auto", "default", "modality"]
"""`only`: there is one upstream and no rule. `model`: the request names it. `auto`: a rule of `auto`.
`default`: the name is unknown. `modality`: what it names cannot take what it holds."""
_SHOWN_CHARS = 128


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a request goes. The targets of one step are replicas; a later step is for when they fail.

    `route` is the configured name of a model, a route or an upstream, or the served name of a model; `rule`
    counts the rules of `auto` from 0. All targets take what the request holds. `meant` is the route or
    upstream that the name of a model stands for.
    """

    route: str
    steps: Steps
    reason: Reason
    rule: int | None = None
    max_pixels: int | None = None
    meant: str = ""


def choose_route(need: Need, settings: RoutingSettings, known: Mapping[str, Target]) -> Decision:
    """The decision for one request. `known` has all upstreams by name.

    Raises `ModelNotFound` for a name that nobody knows, `ModalityNotServed` when nobody can take it.
    """
    found = _named(need, settings, known)
    if found is not None:
        return _able(found, need, known) or _by_rule(need, settings, known, "modality") or _refuse(need)
    if need.model is None or need.model in AUTO:
        found = _by_rule(need, settings, known, "auto")
        if found is not None:
            return found
    if settings.default_route is not None:
        found = _resolve(settings.default_route, settings, known, "default")
        return _able(found, need, known) or _by_rule(need, settings, known, "modality") or _refuse(need)
    if need.model is None:
        return _able(Decision("any", (tuple(known),), "auto"), need, known) or _refuse(need)
    if need.model in AUTO and settings.auto:
        return _refuse(need)
    raise ModelNotFound(_not_found(need.model, settings, known), param="model")


def model_names(settings: RoutingSettings, known: Mapping[str, Target]) -> list[str]:
    """All names that a request may give, without those of `auto` unless there are rules."""
    served = {name for target in known.values() for name in target.serves}
    automatic = {name for name, task in AUTO.items() if any(_asks(rule, task) for rule in settings.auto)}
    return sorted(served | set(settings.models) | automatic)


def names_of(model: str, settings: RoutingSettings) -> frozenset[str]:
    """The name of a model, and those of the routes to which it may lead: any of them opens it."""
    meant = {settings.models[model]} if model in settings.models else set()
    if model in AUTO:
        meant |= {rule.route for rule in settings.auto if _asks(rule, AUTO[model])}
    return frozenset({model, *meant})


def _asks(rule: AutoRule, task: str) -> bool:
    return rule.tasks is None or task in rule.tasks


def _named(need: Need, settings: RoutingSettings, known: Mapping[str, Target]) -> Decision | None:
    if need.model is None:
        return None
    if need.model in settings.models:
        meant = settings.models[need.model]
        return replace(_resolve(meant, settings, known, "model"), route=need.model, meant=meant)
    serving = tuple(name for name, target in known.items() if need.model in target.serves)
    return Decision(need.model, (serving,), "model") if serving else None


def _by_rule(
    need: Need, settings: RoutingSettings, known: Mapping[str, Target], reason: Reason
) -> Decision | None:
    """The first rule that matches and that leads to a target which can take the request."""
    for number, rule in enumerate(settings.auto):
        if _asks(rule, need.task) and (
            rule.modalities is None or rule.modalities & (need.modalities or TEXT)
        ):
            found = _able(_resolve(rule.route, settings, known, reason, number), need, known)
            if found is not None:
                return found
    return None


def _resolve(
    name: str,
    settings: RoutingSettings,
    known: Mapping[str, Target],
    reason: Reason,
    rule: int | None = None,
) -> Decision:
    """What a name of the configuration stands for: a route, a model, an upstream, or a served model."""
    if name in settings.routes:
        route = settings.routes[name]
        return Decision(name, route.steps, reason, rule, route.max_pixels)
    if name in known:
        return Decision(name, ((name,),), reason, rule)
    meant = settings.models.get(name, "")
    if meant in settings.routes:
        route = settings.routes[meant]
        return Decision(name, route.steps, reason, rule, route.max_pixels)
    if meant in known:
        return Decision(name, ((meant,),), reason, rule)
    return Decision(name, (tuple(n for n, target in known.items() if name in target.serves),), reason, rule)


def _able(found: Decision, need: Need, known: Mapping[str, Target]) -> Decision | None:
    """The decision without targets that cannot take the request; None when none is left."""
    steps = (
        tuple(name for name in step if name in known and known[name].takes(need.modalities))
        for step in found.steps
    )
    left = tuple(step for step in steps if step)
    return replace(found, steps=left) if left else None


def _refuse(need: Need) -> Decision:
    name = f"`{need.model[:_SHOWN_CHARS]}` and the rules of `auto` have" if need.model else "There is"
    raise ModalityNotServed(
        f"{name} no model that takes {need.shown}; leave out what it cannot take, or ask for another model",
        param="model",
    )


def _not_found(model: str, settings: RoutingSettings, known: Mapping[str, Target]) -> str:
    names = ", ".join(model_names(settings, known))
    return f"The model `{model[:_SHOWN_CHARS]}` does not exist; this gateway serves {names}"
