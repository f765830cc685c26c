"""In which order the targets of a decision are tried."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dabom.gateway.routing.choose import Steps


@dataclass(frozen=True, slots=True)
class TargetState:
    """How a target is now, by the gateway's own counts: a server's gauges lag behind by seconds."""

    name: str
    healthy: bool = True
    tokens: int = 0
    requests: int = 0


def order_targets(
    steps: Steps, states: Mapping[str, TargetState], affinity: str, margin_tokens: int
) -> list[str]:
    """The names to try, one after the other; each once.

    Within a step the replica that `affinity` points to comes first, unless it has more than `margin_tokens`
    more in flight than the least busy; the others follow by tokens in flight. Targets that are not healthy
    come behind all that are: when nobody is, asking is the only way to find out.
    """
    found: dict[str, None] = {}
    for healthy in (True, False):
        for step in steps:
            names = [name for name in step if states[name].healthy is healthy and name not in found]
            found.update(dict.fromkeys(_order_replicas(names, states, affinity, margin_tokens)))
    return list(found)


def affinity_key(media: Sequence[tuple[str, int]]) -> str:
    """What decides which replica a request prefers: the largest of its media, the first of equals.

    The text does not count: the same instructions with other clips must not meet on one replica. Nor does
    every picture: the example picture of a prompt is smaller than the clip that is asked about, and in a
    conversation that grows by screenshots the largest one rarely changes. Empty when there are no media.
    """
    if not media:
        return ""
    digest, size = max(media, key=lambda one: one[1])
    return f"{digest}-{size}"


def preferred(names: Sequence[str], affinity: str) -> str:
    """Rendezvous hashing (Thaler, Ravishankar 1998): a lost replica moves its own media only."""
    return max(names, key=lambda name: (hashlib.blake2b(f"{affinity} {name}".encode()).digest(), name))


def _order_replicas(
    names: Sequence[str], states: Mapping[str, TargetState], affinity: str, margin_tokens: int
) -> list[str]:
    ordered = sorted(names, key=lambda name: (states[name].tokens, states[name].requests, name))
    if affinity and len(ordered) > 1:
        wanted = preferred(ordered, affinity)
        if states[wanted].tokens <= states[ordered[0]].tokens + margin_tokens:
            ordered.remove(wanted)
            ordered.insert(0, wanted)
    return ordered
