"""The permits of one target for tasks: an asyncio shell around a `Line`."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, cast

from dabom.errors import QueueFull, QueueTimeout
from dabom.gateway.admission.claims import SMALLEST, Claim
from dabom.gateway.admission.line import Line
from dabom.gateway.admission.settings import AdmissionSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from dabom.errors import DabomError

_UNMEASURED_S = 5.0
_MAX_RETRY_S = 300.0


class Permits:
    """A permit is handed to the next in line by the one who returns it.

    Not `asyncio.Semaphore` under `wait_for`: in Python 3.11 a time-out that meets a grant loses the permit.
    """

    def __init__(
        self,
        limit: int,
        budget: int | None = None,
        settings: AdmissionSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        settings = settings or AdmissionSettings()
        self.line = Line(limit, budget, settings.max_queue, settings.aging_s)
        self._clock = clock

    @property
    def limit(self) -> int:
        """Requests that may run at a time."""
        return self.line.limit

    @property
    def budget(self) -> int | None:
        """Tokens that may be in flight at a time; None: not bounded."""
        return self.line.budget

    def change(self, limit: int, budget: int | None, settings: AdmissionSettings) -> None:
        """Other limits from now on, without forgetting who holds a permit and who waits."""
        self.line.change(limit, budget, settings.max_queue, settings.aging_s)
        self._pass_on(self._clock())

    @property
    def held(self) -> int:
        """Requests that hold a permit."""
        return self.line.held

    @property
    def tokens(self) -> int:
        """Tokens of those that hold a permit."""
        return self.line.tokens

    @property
    def waiting(self) -> int:
        """Requests that stand in line."""
        return self.line.waiting

    @property
    def free(self) -> bool:
        """Whether a permit can be had without waiting and without passing anyone."""
        return self.line.free

    def hold(self, wait_s: float, claim: Claim = SMALLEST) -> Permit:
        """A permit for the length of an `async with`.

        Raises `QueueFull` when too many wait, `QueueTimeout` when none comes free in `wait_s`.
        """
        return Permit(self, wait_s, claim)

    async def acquire(self, wait_s: float, claim: Claim = SMALLEST) -> None:
        """Take a permit; the caller must `release` it with the same claim."""
        if not self.line.take(claim):
            await self.stand(wait_s, claim)

    def release(self, claim: Claim = SMALLEST) -> None:
        """Give a permit back."""
        if not self.line.waiting:
            self.line.give_back(claim)
            return
        now = self._clock()
        self.line.give_back(claim, now)
        self._pass_on(now)

    async def stand(self, wait_s: float, claim: Claim) -> None:
        """Wait in line for a permit."""
        loop, now = asyncio.get_running_loop(), self._clock()
        if self.line.full(claim.priority):
            raise self._full(claim, now)
        granted: asyncio.Future[None] = loop.create_future()
        ticket = self.line.join(claim, now, granted)
        self._pass_on(now)  # it may be small enough, or urgent enough, to pass those who wait
        clock = loop.call_later(wait_s, self._expire, granted, wait_s, claim)
        try:
            await granted
        except BaseException:
            if self.line.leave(ticket):
                self._pass_on(self._clock())  # those behind it may be smaller
            elif ticket.who is granted:  # granted and cancelled in the same turn of the loop: pass it on
                self.release(claim)
            raise
        finally:
            clock.cancel()

    def swap(self, claim: Claim, other: Claim) -> bool:
        """Hold `other` instead of `claim`, unless that must wait."""
        done = self.line.swap(claim, other)
        if done and other.tokens < claim.tokens and self.line.waiting:
            self._pass_on(self._clock())
        return done

    def _pass_on(self, now: float) -> None:
        while (ticket := self.line.next(now)) is not None:
            granted = cast("asyncio.Future[None]", ticket.who)
            if granted.done():  # it has left in this very turn, and has not come to say so
                ticket.who = None
                self.line.give_back(ticket.claim)
            else:
                granted.set_result(None)

    def _expire(self, granted: asyncio.Future[None], wait_s: float, claim: Claim) -> None:
        if not granted.done():
            granted.set_exception(self._late(wait_s, claim))

    def _late(self, wait_s: float, claim: Claim) -> DabomError:
        bound = f"{self.limit} requests"
        if self.budget is not None:
            bound += f" of {self.budget:,} tokens in all (this one has {claim.tokens:,})"
        return QueueTimeout(
            f"no permit came free in {wait_s:g} s; {bound} may run at a time; try again later"
        )

    def _full(self, claim: Claim, now: float) -> DabomError:
        name = claim.priority.name.lower()
        return QueueFull(
            f"{self.line.max_queue:,} requests of priority {name} wait already, which is the limit; "
            "try again later",
            retry_after_s=self.retry_s(now),
        )

    def retry_s(self, now: float) -> float:
        """When one who is refused now should come again: when those that wait will have been served."""
        seconds = self.line.drain_s(now)
        return min(max(1.0, math.ceil(_UNMEASURED_S if seconds is None else seconds)), _MAX_RETRY_S)


class Permit:
    """One permit. It is returned when its block ends, however it ends."""

    __slots__ = ("_permits", "_wait_s", "claim", "waited_s")

    def __init__(self, permits: Permits, wait_s: float, claim: Claim) -> None:
        self._permits = permits
        self._wait_s = wait_s
        self.claim = claim
        self.waited_s = 0.0

    async def __aenter__(self) -> Permit:
        if self._permits.line.take(self.claim):
            return self
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            await self._permits.stand(self._wait_s, self.claim)
        finally:
            self.waited_s = loop.time() - started
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._permits.release(self.claim)

    def claims(self, other: Claim) -> bool:
        """From now on hold `other`, when that needs no waiting and passes nobody; else nothing changes."""
        if not self._permits.swap(self.claim, other):
            return False
        self.claim = other
        return True
