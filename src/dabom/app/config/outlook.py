"""What each kind of request would do under some settings, by the function that the gateway itself asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dabom.errors import DabomError
from dabom.gateway.routing import Decision, Need, choose_route, configured_targets, target_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dabom.gateway import GatewaySettings
    from dabom.gateway.routing.settings import Modality

AUTOMATIC = ("auto", "auto-fast", "auto-precise", "auto-thinking", "agent", "coding")
KINDS: tuple[Modality, ...] = ("text", "image", "video", "audio")
UNKNOWN = "no-such-model"
"""Stands for every model name that nobody knows."""


@dataclass(frozen=True)
class Prospect:
    """One kind of request: the model that it names, what it holds besides text, and what becomes of it."""

    model: str
    holds: Modality
    decision: Decision | None = None
    refusal: DabomError | None = None

    def told(self) -> dict[str, Any]:
        """The same for programs."""
        head: dict[str, Any] = {"model": self.model, "holds": self.holds}
        if self.decision is None:
            error = self.refusal or DabomError("no decision")
            return head | {"error": {"status": error.status, "code": error.code, "message": error.message}}
        found = self.decision
        return head | {
            "route": found.route,
            "steps": [list(step) for step in found.steps],
            "reason": found.reason,
            "rule": None if found.rule is None else found.rule + 1,
            "max_pixels": found.max_pixels,
        }


def foresee(settings: GatewaySettings) -> list[Prospect]:
    """All kinds of requests, by the configuration alone; names that upstreams will tell are not known yet."""
    named = (*settings.routing.models, *(one.model for one in settings.upstreams if one.model))
    return [
        _ask(model, holds, settings)
        for model in (*AUTOMATIC, *dict.fromkeys(named), UNKNOWN)
        for holds in KINDS
    ]


def nameless(settings: GatewaySettings) -> Iterator[str]:
    """Upstreams whose model has no name in the configuration: they tell it when they run."""
    routing = settings.routing
    routed = {name for route in routing.routes.values() for step in route.steps for name in step}
    routed |= {*routing.models.values(), *(rule.route for rule in routing.auto)}
    for one in settings.upstreams:
        if one.model is None and target_name(one) not in routed:
            yield target_name(one)


def _ask(model: str, holds: Modality, settings: GatewaySettings) -> Prospect:
    routing = settings.routing
    if len(settings.upstreams) == 1 and not (routing.models or routing.auto or routing.default_route):
        name = target_name(settings.upstreams[0])  # one upstream and no rule: it gets everything
        return Prospect(model, holds, Decision(name, ((name,),), "only"))
    need = Need(model=model, modalities=frozenset() if holds == "text" else frozenset({holds}))
    try:
        return Prospect(model, holds, choose_route(need, routing, configured_targets(settings.upstreams)))
    except DabomError as refusal:
        return Prospect(model, holds, refusal=refusal)
