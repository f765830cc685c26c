"""What may interrupt a request from outside: its client leaves, a clock runs out, the gateway shuts down."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from dabom.errors import ClientGone, DabomError, FirstByteTimeout, IdleTimeout, TotalTimeout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from dabom.gateway.asgi import Receive

T = TypeVar("T")
NEVER_S = float("inf")


class Guard:
    """Ends the block that it guards with the error that is the reason of the interruption.

    All clocks of a request share one timer. It only ever moves to an earlier time, and looks around when it
    rings: a chunk costs one reading of the time, and most requests arm it once.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(self._loop)
        self._reason: DabomError | None = None
        self._watch: asyncio.Task[None] | None = None
        self.told = False
        """The server calls `leave` when the connection is lost; nobody has to wait for that."""
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = NEVER_S
        self._started = self._loop.time()
        self._ends_at = NEVER_S
        self._total_s = 0.0
        self._silence_s = NEVER_S
        self._silent: Callable[[], DabomError] | None = None
        self._touched = self._loop.time()
        self._pause_s = NEVER_S
        self._pause_from = self._touched
        self._listening = self._paused = False

    async def __aenter__(self) -> Guard:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
        reason, self._reason, task = self._reason, _OVER, self._task
        if reason is None or task is None:
            return
        task.uncancel()
        if kind is asyncio.CancelledError:
            raise reason from None
        with suppress(asyncio.CancelledError):  # asked for in the same turn in which the block ended
            await asyncio.sleep(0)

    @property
    def reason(self) -> DabomError | None:
        """Why the block is being ended; None when it is not."""
        return self._reason

    def interrupt(self, reason: DabomError) -> None:
        """End the guarded block with `reason`; the first reason counts."""
        if self._reason is None and self._task is not None:
            self._reason = reason
            self._task.cancel()

    def leave(self) -> None:
        """End the guarded block since the client has closed its connection."""
        self.interrupt(ClientGone("the client closed its connection"))

    def watch(self, receive: Receive) -> None:
        """From now on a client that leaves interrupts. The body must have been received whole.

        uvicorn stops reading after a large body; asking it for the next message makes it read again, and so
        see the end of the connection.
        """
        if not self.told:
            self._watch = self._loop.create_task(self._wait_for_leave(receive))

    async def _wait_for_leave(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.leave()

    def limit_total(self, seconds: float) -> None:
        """What follows may take `seconds`; `elapsed_ms` counts from here."""
        self._started = self._loop.time()
        self._ends_at = self._started + seconds
        self._total_s = seconds
        self._arm()

    def elapsed_ms(self) -> float:
        """Milliseconds since `limit_total`."""
        return round((self._loop.time() - self._started) * 1000, 2)

    def limit_silence(self, seconds: float, error: Callable[[], DabomError]) -> None:
        """What `error` makes ends the block when nothing is touched for `seconds`."""
        self._silence_s, self._silent = seconds, error
        self.touch()
        self._arm()

    def limit_pause(self, seconds: float) -> None:
        """`or_pause` gives up, and may be called again, when nothing comes for `seconds`."""
        self._pause_s = seconds
        self._pause_from = self._loop.time()
        self._arm()

    def limit_silence_no_more(self) -> None:
        """Until it is limited again silence may last; the total still counts."""
        self._silence_s = NEVER_S

    def unlimit(self) -> None:
        """Stop all clocks; the client is still watched."""
        self._ends_at = self._silence_s = self._pause_s = NEVER_S

    def touch(self) -> None:
        """Something arrived, or was taken by the client."""
        self._touched = self._pause_from = self._loop.time()

    async def or_pause(self, waiting: Awaitable[T]) -> T | None:
        """What is waited for, or None after a pause, which then counts anew; nothing else has changed."""
        self._listening = True
        try:
            return await waiting
        except asyncio.CancelledError:
            if not self._paused:
                raise
            self._paused = False
            if self._task is not None:
                self._task.uncancel()
            if self._reason is not None:
                raise
            self._pause_from = self._loop.time()
            self._arm()
            return None
        finally:
            self._listening = False

    async def trying(self, waiting: Awaitable[T]) -> T:
        """What is waited for. The error of a silence is raised here, so that something else can be tried."""
        try:
            return await waiting
        except asyncio.CancelledError:
            reason, task = self._reason, self._task
            if not isinstance(reason, FirstByteTimeout | IdleTimeout) or task is None:
                raise
            self._reason, self._silence_s = None, NEVER_S
            task.uncancel()
            raise reason from None

    def _arm(self) -> None:
        when = min(self._ends_at, self._touched + self._silence_s, self._pause_from + self._pause_s)
        if when >= self._rings_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = when
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer, self._rings_at = None, NEVER_S
        now = self._loop.time() + _CLOCK_GRAIN_S
        if now >= self._ends_at:
            self.interrupt(TotalTimeout(f"the upstream did not finish in {self._total_s:g} s"))
        elif now >= self._touched + self._silence_s and self._silent is not None:
            self.interrupt(self._silent())
        elif now < self._pause_from + self._pause_s:
            self._arm()
        elif self._listening and self._task is not None and not self._paused:
            self._paused = True
            self._task.cancel()
        else:
            self._pause_from = now  # it is busy sending: ask again a pause later
            self._arm()


_OVER = DabomError("the guarded block has ended")
_CLOCK_GRAIN_S = 0.001  # libuv's timers count whole milliseconds and may ring that much early
