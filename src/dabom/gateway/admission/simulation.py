"""Plays requests through a line with a clock of its own: what a setting would do, without waiting for it."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Protocol

from dabom.gateway.admission.claims import Claim, Priority
from dabom.gateway.admission.line import Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ANSWER_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that comes at `at` and keeps its target busy for `seconds`."""

    at: float
    claim: Claim
    seconds: float
    what: str = ""


@dataclass(frozen=True, slots=True)
class Served:
    """When it got its permit and when it gave it back, in seconds from the start."""

    arrival: Arrival
    granted: float
    ended: float

    @property
    def waited(self) -> float:
        """Seconds in line."""
        return self.granted - self.arrival.at


class Queue(Protocol):
    """What a `Line` offers; another order can be compared with it."""

    def join(self, claim: Claim, now: float, who: object = None) -> Ticket: ...
    def next(self, now: float) -> Ticket | None: ...
    def give_back(self, claim: Claim, now: float | None = None) -> None: ...


class Fifo:
    """The same permits and tokens strictly in the order of arrival, to compare with."""

    def __init__(self, limit: int, budget: int) -> None:
        self._limit, self._budget = limit, budget
        self._held = self._tokens = 0
        self._order = deque[Ticket]()

    def join(self, claim: Claim, now: float, who: object = None) -> Ticket:
        """Stand in line."""
        self._order.append(Ticket(claim, 0, who))
        return self._order[-1]

    def next(self, now: float) -> Ticket | None:
        """Grant a permit to the first, when it fits."""
        if not self._order or self._held == self._limit:
            return None
        if self._tokens + self._order[0].claim.tokens > self._budget:
            return None
        self._held += 1
        self._tokens += self._order[0].claim.tokens
        return self._order.popleft()

    def give_back(self, claim: Claim, now: float | None = None) -> None:
        """Return what a grant took."""
        self._held -= 1
        self._tokens -= claim.tokens


def play(
    arrivals: Sequence[Arrival], line: Queue, after: Callable[[float], None] = lambda now: None
) -> list[Served]:
    """All requests in the order in which they end. `after` is called after each event."""
    events: list[tuple[float, int, Arrival, float | None]] = []
    for number, arrival in enumerate(arrivals):
        heapq.heappush(events, (arrival.at, number, arrival, None))
    served, count = list[Served](), len(arrivals)
    while events:
        now, _, arrival, granted = heapq.heappop(events)
        if granted is None:
            line.join(arrival.claim, now, arrival)
        else:
            line.give_back(arrival.claim, now)
            served.append(Served(arrival, granted, now))
        while (ticket := line.next(now)) is not None:
            got = ticket.who
            assert isinstance(got, Arrival)  # noqa: S101 - it is what has been given to `join` above
            count += 1
            heapq.heappush(events, (now + got.seconds, count, got, now))
        after(now)
    return served


def mixed(count: int, within_s: float, seed: int) -> list[Arrival]:
    """Text, pictures and clips of four keys in every priority, as a broadcaster's day is.

    Tokens as Qwen3-VL counts them: a clip of six seconds is 1,370 (360p) or 12,290 (1080p).
    """
    random = Random(seed)  # noqa: S311 - a simulation must be repeatable
    found = []
    for _ in range(count):
        what, tokens, seconds, priority = random.choices(
            [
                ("small realtime", random.randint(50, 400), 0.4, Priority.REALTIME),
                ("text", random.randint(200, 3_000), 1.5, Priority.NORMAL),
                ("picture", random.randint(300, 6_000), 2.0, Priority.NORMAL),
                ("clip", random.choice([1_370, 12_290]), 6.0, Priority.NORMAL),
                ("clip of a batch", random.choice([1_370, 12_290]), 6.0, Priority.BATCH),
            ],
            weights=[15, 25, 20, 20, 20],
        )[0]
        claim = Claim(tokens + _ANSWER_TOKENS, priority, random.choice("abcd"))
        found.append(Arrival(random.uniform(0, within_s), claim, seconds * random.uniform(0.8, 1.2), what))
    return sorted(found, key=lambda arrival: arrival.at)
