"""The line of one target: who holds permits, who waits, and who is next. Values and the time in, grants out.

A grant takes one permit and the tokens of its claim. The rules, in the order in which they decide:

1. Neither the permits nor the token budget are ever exceeded; a claim that is larger than the whole budget,
   which only an estimate can be, goes alone.
2. Realtime goes before normal, normal before batch. A lower priority *ages*: when it was last served
   `aging_s` ago and has been passed by `PASSES` grants since, the next grant is its own.
3. Within a priority the keys share by tokens (start-time fair queueing, Goyal 1996): each request starts when
   the one before it of the same key would end, if its key had the target for itself. One key alone is served
   in the order of arrival.
4. What is first but does not fit yet may be passed by others of as many tokens as the budget has. Then nobody
   passes it: what runs ends, and it gets its room. So small requests do not starve a large one, and a large
   one does not leave the target idle.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING

from dabom.gateway.admission.claims import Priority

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dabom.gateway.admission.claims import Claim

PASSES = 4
"""Grants to higher priorities after which one that has aged is next: it costs them at most a fifth."""
LOOK = 32
"""Requests of each priority that are looked at when the first does not fit: the work per grant is bounded."""
_MEASURED = 64


class Ticket:
    """One request in the line. `who` is what the caller likes."""

    __slots__ = ("claim", "number", "passed", "start", "waits", "who")

    def __init__(self, claim: Claim, number: int, who: object) -> None:
        self.claim = claim
        self.number = number
        self.who = who
        self.start = 0
        self.passed = 0
        """Tokens of those that went ahead of it while it was first."""
        self.waits = True

    def __lt__(self, other: Ticket) -> bool:
        return (self.start, self.number) < (other.start, other.number)


class _Rank:
    """Those of one priority that wait, in their order."""

    def __init__(self) -> None:
        self.order: list[Ticket] = []
        self.served = 0.0
        """When one of them last got a permit, or when the first of them came."""
        self.overtaken = 0
        """Grants to higher priorities since then."""
        self._virtual = 0
        self._ends: dict[str, int] = {}

    def add(self, ticket: Ticket, now: float) -> None:
        if not self.order:
            self.served, self.overtaken = now, 0
        claim = ticket.claim
        ticket.start = max(self._virtual, self._ends.get(claim.key, 0))
        self._ends[claim.key] = ticket.start + max(claim.tokens, 1)
        insort(self.order, ticket)

    def remove(self, ticket: Ticket) -> None:
        del self.order[bisect_left(self.order, ticket)]
        if not self.order:  # nobody is owed anything any more
            self._virtual = 0
            self._ends.clear()

    def grant(self, ticket: Ticket, now: float) -> None:
        self.served, self.overtaken = now, 0
        self._virtual = max(self._virtual, ticket.start)
        self.remove(ticket)

    def give_up(self, ticket: Ticket) -> None:
        """It leaves without having been served: what its key would ask next starts in its place."""
        claim = ticket.claim
        if self._ends[claim.key] == ticket.start + max(claim.tokens, 1):
            self._ends[claim.key] = ticket.start
        self.remove(ticket)


class Line:
    """`limit` permits and `budget` tokens (None: not bounded) of one target."""

    def __init__(self, limit: int, budget: int | None, max_queue: int, aging_s: float) -> None:
        self.limit = limit
        self.budget = budget
        self.max_queue = max_queue
        self.held = 0
        self.tokens = 0
        self.waiting = 0
        self.aging_s = aging_s
        self._ranks = tuple(_Rank() for _ in Priority)
        self._count = 0
        self._released = deque[float](maxlen=_MEASURED)

    @property
    def free(self) -> bool:
        """Whether a small request can have a permit without waiting and without passing anyone."""
        return (
            self.held < self.limit and not self.waiting and (self.budget is None or self.tokens < self.budget)
        )

    @property
    def tokens_waiting(self) -> int:
        """Tokens of those that stand in line."""
        return sum(ticket.claim.tokens for rank in self._ranks for ticket in rank.order)

    def change(self, limit: int, budget: int | None, max_queue: int, aging_s: float) -> None:
        """Other limits from now on. Until enough has come back, more may be held than they allow."""
        self.limit, self.budget, self.max_queue, self.aging_s = limit, budget, max_queue, aging_s

    def take(self, claim: Claim) -> bool:
        """Grant at once, when nobody waits and it fits."""
        if self.waiting or self.held >= self.limit:
            return False
        tokens = self.tokens + claim.tokens
        if self.budget is not None and tokens > self.budget and self.tokens:
            return False
        self.held += 1
        self.tokens = tokens
        return True

    def full(self, priority: Priority) -> bool:
        """Whether no more of that priority may join."""
        return len(self._ranks[priority].order) >= self.max_queue

    def join(self, claim: Claim, now: float, who: object = None) -> Ticket:
        """Stand in line, which must not be full."""
        self._count += 1
        ticket = Ticket(claim, self._count, who)
        self._ranks[claim.priority].add(ticket, now)
        self.waiting += 1
        return ticket

    def leave(self, ticket: Ticket) -> bool:
        """Stop waiting; False for one that does not wait any more."""
        if not ticket.waits:
            return False
        ticket.waits = False
        self._ranks[ticket.claim.priority].give_up(ticket)
        self._shrink()
        return True

    def give_back(self, claim: Claim, now: float | None = None) -> None:
        """Return what a grant took; with the time, it counts as work done while others waited."""
        self.held -= 1
        self.tokens -= claim.tokens
        if now is not None:
            self._released.append(now)

    def swap(self, claim: Claim, other: Claim) -> bool:
        """Hold `other` instead of `claim`, when the difference fits and passes nobody that waits."""
        more = other.tokens - claim.tokens
        if more > 0 and self.budget is not None and (self.waiting or self.tokens + more > self.budget):
            return False
        self.tokens += more
        return True

    def next(self, now: float) -> Ticket | None:
        """Grant a permit to whoever is next; None when nobody can have one now."""
        if not self.waiting or self.held >= self.limit:
            return None
        first: Ticket | None = None
        for ticket in self._in_order(now):
            tokens = ticket.claim.tokens
            if self.budget is not None and self.tokens + tokens > self.budget and self.tokens:
                first = first or ticket
                continue
            if first is not None and self.budget is not None:
                if first.passed + tokens > self.budget:
                    return None
                first.passed += tokens
            self._grant(ticket, now)
            return ticket
        return None

    def drain_s(self, now: float) -> float | None:
        """Seconds until those that wait now will have been served; None while that has not been measured."""
        if len(self._released) < 2 or now <= self._released[0]:
            return None
        return self.waiting * (now - self._released[0]) / (len(self._released) - 1)

    def _in_order(self, now: float) -> Iterator[Ticket]:
        ranks = [rank for rank in self._ranks if rank.order]
        if len(ranks) > 1:
            ranks.sort(key=lambda rank: rank.served if self._aged(rank, now) else now)
        for rank in ranks:
            yield from rank.order[:LOOK]

    def _aged(self, rank: _Rank, now: float) -> bool:
        return rank.overtaken >= PASSES and now - rank.served >= self.aging_s

    def _grant(self, ticket: Ticket, now: float) -> None:
        ticket.waits = False
        priority = ticket.claim.priority
        self._ranks[priority].grant(ticket, now)
        for rank in self._ranks[priority + 1 :]:
            rank.overtaken += 1
        self._shrink()
        self.held += 1
        self.tokens += ticket.claim.tokens

    def _shrink(self) -> None:
        self.waiting -= 1
        if not self.waiting:
            self._released.clear()  # the next line drains at a speed of its own
