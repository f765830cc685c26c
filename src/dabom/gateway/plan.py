"""Where one request may go, what each of its targets gets, and how far along its route it is."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from random import uniform
from typing import TYPE_CHECKING

import msgspec

from dabom.errors import UpstreamUnreachable
from dabom.gateway.routing import AUTO
from dabom.gateway.routing.fallback import cause_of_error, cause_of_status, room_of
from dabom.gateway.routing.turns import counts, first_that_counts
from dabom.gateway.splice import Edit

if TYPE_CHECKING:
    from dabom.errors import DabomError
    from dabom.gateway.account import Record
    from dabom.gateway.facts import Facts
    from dabom.gateway.metrics import Metrics
    from dabom.gateway.relay import Outgoing
    from dabom.gateway.routing import Decision, Need
    from dabom.gateway.routing.fallback import Cause
    from dabom.gateway.upstream import Upstream

HEADER, MEDIA_HEADER = b"x-dabom-route", b"x-dabom-media"
UNFIT = "unfit"
"""The hop of a target that was not asked: its breaker has opened, or it wants to be left alone."""
_RETRY_PAUSE_S = (0.05, 0.25)
_UNSAFE = re.compile(r"[^!-$&-+\--:<-~]")
"""What a name may not hold in the header: spaces, commas, semicolons and what is not ASCII."""
_NOTES = {
    kind: f"[{kind} of an earlier turn: left out, this model does not take it]"
    for kind in ("image", "video", "audio", "file")
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The targets of a request in the order in which they are tried. `decision` is None without any rule."""

    targets: tuple[Upstream, ...]
    decision: Decision | None = None
    need: Need | None = None
    media_turns: int = 1

    @property
    def route(self) -> str:
        """Name of the route in logs and metrics; empty without any rule."""
        return "" if self.decision is None else self.decision.route

    @property
    def max_pixels(self) -> int | None:
        """The route's own limit for pictures."""
        return None if self.decision is None else self.decision.max_pixels

    def names(self, model: str | None) -> tuple[str, ...]:
        """What a key must be allowed to use: the model that was asked for, or the route to which it leads.

        A name opens its own way and no other: that of another modality, or of unknown names, needs its own.
        """
        decision = self.decision
        if decision is None:
            return (model or "",)
        if decision.reason in ("modality", "default") and model not in AUTO:
            return (decision.route,)
        return (model or "", decision.route, decision.meant)

    def adapted(self, target: Upstream, outgoing: Outgoing) -> tuple[Facts, list[Edit]]:
        """The request as one target can take it: its facts, and what changes in the body, most often nothing.

        The model's name becomes the one that the target knows. Media of older turns that it does not take
        become a word in their place: they would be refused, and with them the whole conversation.
        """
        facts, edits = outgoing.facts, list[Edit]()
        if self.decision is None:
            return facts, edits
        if facts.model is not None and facts.model_place is not None:
            name = target.knows_as(facts.model)
            if name != facts.model:
                edits.append(Edit(*facts.model_place, msgspec.json.encode(name)))
        if self.need is not None and self.need.old and not target.known.takes(self.need.old):
            facts = self._without_old(target, outgoing, edits)
        return facts, edits

    def _without_old(self, target: Upstream, outgoing: Outgoing, edits: list[Edit]) -> Facts:
        facts = outgoing.facts
        first = first_that_counts(facts.messages, self.media_turns)
        taken = target.known.modalities or frozenset()
        typed = "input_text" if outgoing.path.startswith("/responses") else "text"
        kept = []
        for medium, place in zip(facts.media, facts.places, strict=True):
            if medium.kind in taken or counts(facts.messages, place.message, first):
                kept.append((medium, place))
            else:
                note = msgspec.json.encode({"type": typed, "text": _NOTES[medium.kind]})
                edits.append(Edit(place.part_start, place.part_end, note))
        return msgspec.structs.replace(
            facts, media=tuple(medium for medium, _ in kept), places=tuple(place for _, place in kept)
        )


class Way:
    """The way of one request along its plan.

    `settled` is set when the first byte of an answer is about to be passed on: from then on nobody else is
    asked.
    """

    def __init__(self, plan: Plan, retries: int, metrics: Metrics) -> None:
        self.plan = plan
        self.hops: list[str] = []
        self.target = plan.targets[0]
        self.settled = self.charged = self.timed = False
        self.pause_s = 0.0
        """Before the next target is asked."""
        self.media = ""
        """What was done with the media for the target, for `X-Dabom-Media`."""
        self.left_out = 0
        """Media of older turns that the target was not sent."""
        self._next = deque(plan.targets[1:])
        self._passed: set[str] = set()
        self._rounds = retries
        self._connected = False
        self._metrics = metrics

    def goes_on_after(self, error: DabomError) -> bool:
        """Whether the next target is to be asked after an error; then `target` is that one."""
        if not isinstance(error, UpstreamUnreachable):
            self._connected = True
        room = getattr(error, "numbers", {}).get("limit")
        return self._goes_on(cause_of_error(error), error.code, room)

    def goes_on_from(self, status: int, body: bytes) -> bool:
        """Whether the next target is to be asked instead of passing this answer on."""
        self._connected = True
        cause = cause_of_status(status, body)
        return self._goes_on(cause, f"http_{status}", room_of(body) if cause == "long" else None)

    def passes_over(self, now: float) -> bool:
        """Whether another target is to be asked, since this one became unfit while a permit was waited for.

        Then `target` is the next one. Each is passed over once, and asked in the end when nobody else can.
        """
        target = self.target
        if target.name in self._passed or target.health.fit(now):
            return False
        if not any(one.health.fit(now) for one in self._next):
            return False
        self._passed.add(target.name)
        self._next.append(target)
        self.hops.append(f"{_safe(target.name)};failed={UNFIT}")
        self._metrics.fallbacks.add(self.plan.route, target.name, UNFIT)
        self.pause_s = 0.0
        self.target = self._next.popleft()
        return True

    def note(self, record: Record) -> None:
        """Write down the hops so far, and where the request is now."""
        if record.upstream != self.target.name:
            record.upstream, record.revision = self.target.name, self.target.settings.revision or ""
            record.served = self.target.knows_as(record.model or "")
        if self.plan.decision is not None:
            record.route, record.reason = self.plan.route, self.plan.decision.reason
        if self.hops:
            record.hops = tuple(self.hops)

    def header(self, outcome: str) -> list[tuple[bytes, bytes]]:
        """`X-Dabom-Route`: the route and the reason for it, each target that was asked and what it did.

        And `X-Dabom-Media`, when there is something to tell of them.
        """
        told = [(MEDIA_HEADER, self.media.encode())] if self.media else []
        decision = self.plan.decision
        if decision is None:
            return told
        first = f"{_safe(decision.route)};reason={decision.reason}"
        if self.left_out:
            first += f";left_out={self.left_out}"
        return [
            *told,
            (HEADER, ", ".join([first, *self.hops, f"{_safe(self.target.name)};{outcome}"]).encode()),
        ]

    def _goes_on(self, cause: Cause | None, code: str, room: int | None) -> bool:
        if cause is None:
            return False
        if cause == "long":
            self._drop_narrow(room or self.target.room)
        again = not self._next
        if again:
            if cause == "long" or self._connected or not self._rounds:
                return False
            self._rounds -= 1
            self._next.extend(self.plan.targets)
            self.pause_s = uniform(*_RETRY_PAUSE_S)  # noqa: S311 - so that not all come back at once
        self.hops.append(f"{_safe(self.target.name)};failed={code}")
        if again:
            self._metrics.retries.add(self._next[0].name, code)
        else:
            self._metrics.fallbacks.add(self.plan.route, self.target.name, code)
            self.pause_s = 0.0
        self.target = self._next.popleft()
        return True

    def _drop_narrow(self, room: int | None) -> None:
        """Keep targets that are known to take longer prompts; without numbers there are none."""
        wider = [one for one in self._next if room is not None and one.room is not None and one.room > room]
        self._next = deque(wider)


def _safe(name: str) -> str:
    return _UNSAFE.sub(lambda found: "".join(f"%{octet:02X}" for octet in found[0].encode()), name)
