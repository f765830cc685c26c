"""The permit pool of one upstream: at most `limit` requests at a time, the others wait in order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from dabom.errors import QueueTimeout

if TYPE_CHECKING:
    from types import TracebackType


class Permits:
    """First come, first served. A permit is handed to the next in line by the one who returns it.

    Not `asyncio.Semaphore` under `wait_for`: in Python 3.11 a time-out that meets a grant loses the permit.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """Requests that stand in line."""
        return sum(not ticket.done() for ticket in self._line)

    @property
    def free(self) -> bool:
        """Whether a permit can be had without waiting and without passing anyone."""
        return self.held < self.limit and not self._line

    def hold(self, wait_s: float) -> Permit:
        """A permit for the length of an `async with`; `QueueTimeout` when none comes free in `wait_s`."""
        return Permit(self, wait_s)

    async def acquire(self, wait_s: float) -> None:
        """Take a permit; the caller must `release` it."""
        if self.free:
            self.held += 1
            return
        loop = asyncio.get_running_loop()
        ticket: asyncio.Future[None] = loop.create_future()
        self._line.append(ticket)
        clock = loop.call_later(wait_s, _expire, ticket, wait_s, self.limit)
        try:
            await ticket
        except BaseException:
            if ticket.done() and not ticket.cancelled() and ticket.exception() is None:
                self.release()  # granted and cancelled in the same turn of the loop: pass it on
            elif ticket in self._line:
                self._line.remove(ticket)
            raise
        finally:
            clock.cancel()

    def release(self) -> None:
        """Give a permit back."""
        while self._line:
            ticket = self._line.popleft()
            if not ticket.done():
                ticket.set_result(None)
                return
        self.held -= 1


class Permit:
    """One permit. It is returned when its block ends, however it ends."""

    __slots__ = ("_permits", "_wait_s", "waited_s")

    def __init__(self, permits: Permits, wait_s: float) -> None:
        self._permits = permits
        self._wait_s = wait_s
        self.waited_s = 0.0

    async def __aenter__(self) -> Permit:
        if self._permits.free:
            self._permits.held += 1
            return self
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            await self._permits.acquire(self._wait_s)
        finally:
            self.waited_s = loop.time() - started
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._permits.release()


def _expire(ticket: asyncio.Future[None], wait_s: float, limit: int) -> None:
    if not ticket.done():
        ticket.set_exception(
            QueueTimeout(
                f"no permit came free in {wait_s:g} s; {limit} requests may run at a time; try again later"
            )
        )
