"""A request's body while it arrives: bounded in size and in silence, checked as it comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dabom.errors import BodyTooLarge, ClientGone, UploadTimeout
from dabom.gateway.guard import NEVER_S
from dabom.gateway.scan import WHOLE_BYTES, Scanner, scan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dabom.errors import DabomError
    from dabom.gateway.asgi import Receive
    from dabom.gateway.guard import Guard
    from dabom.gateway.scan import Skeleton

FLOW_START_BYTES = 64 * 1024
"""A body that has less is received first: there is nothing to gain."""
FLOW_WAIT_S = 0.25
"""How long in all an upload that flows on may keep its upstream waiting."""


class Upload:
    """Receives one body. `length` is the declared one, None for a chunked upload."""

    def __init__(
        self, receive: Receive, length: int | None, limit: int, error: type[DabomError] = BodyTooLarge
    ) -> None:
        self.length = length
        self.size = 0
        self.ended = False
        self.receive = receive
        self._limit = limit
        self._error = error

    def admit(self) -> None:
        """Refuse by the declared length, before a byte is read."""
        if self.length is not None and self.length > self._limit:
            raise self._error(f"the body has {self.length:,} bytes; the limit is {self._limit:,}")

    def limit_silence(self, guard: Guard, seconds: float) -> None:
        """Let `guard` end an upload that stalls."""
        guard.limit_silence(seconds, lambda: UploadTimeout(f"no byte of the body came for {seconds:g} s"))

    async def next(self) -> bytes:
        """The next bytes; empty only when the body has ended."""
        while not self.ended:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone("the client left while it was uploading")
            chunk: bytes = message.get("body", b"")
            self.size += len(chunk)
            self.ended = not message.get("more_body", False)
            if self.size > self._limit:
                raise self._error(f"the body has more than {self._limit:,} bytes, which is the limit")
            if chunk:
                return chunk
        return b""


class Stalled(Exception):
    """An upload that was flowing on keeps its upstream waiting; it must be received first."""


class JsonUpload(Upload):
    """A JSON body. Its chunks are kept as they came: one copy, which can be sent more than once."""

    def __init__(self, receive: Receive, length: int | None, limit: int, guard: Guard) -> None:
        super().__init__(receive, length, limit)
        self.chunks: list[bytes] = []
        self._guard = guard
        self._scanner: Scanner | None = None
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    async def next(self) -> bytes:
        chunk = await super().next()
        self._guard.touch()
        if chunk:
            self.chunks.append(chunk)
            if self._scanner is not None:
                self._scanner.feed(chunk)
            elif self.size > WHOLE_BYTES:
                self._scanner = Scanner()
                for kept in self.chunks:
                    self._scanner.feed(kept)
        return chunk

    async def rest(self) -> Skeleton:
        """Receive what is missing; the skeleton of the whole."""
        while not self.ended:
            await self.next()
        return self._finish()

    @property
    def flows(self) -> bool:
        """Whether so much has come so fast that the rest can be expected at once.

        Then the body may be sent on while it arrives, and its permit is not held for a slow client.
        """
        if self.length is None or self.ended or self.size < FLOW_START_BYTES:
            return False
        took = self._loop.time() - self._began
        return took * (self.length - self.size) / self.size < FLOW_WAIT_S / 2

    async def flow(
        self, put: Callable[[bytes], Awaitable[bool]], checked: Callable[[Skeleton], None]
    ) -> bool:
        """Put the body out while it arrives; the last piece only when `checked` has seen the whole.

        False when nothing more is wanted. Raises `Stalled`, and what is wrong with the body; the upstream
        then has a request without an end, which it drops.
        """
        self._guard.limit_pause(FLOW_WAIT_S)
        position, waited_s = 0, 0.0
        while not self.ended:
            ready = len(self.chunks) - (1 if self.size == self.length else 0)
            for chunk in self.chunks[position:ready]:
                if not await put(chunk):
                    return False
            position = ready
            asked = self._loop.time()
            if await self._guard.or_pause(self.next()) is None or waited_s > FLOW_WAIT_S:
                raise Stalled
            waited_s += self._loop.time() - asked
        self._guard.limit_pause(NEVER_S)
        checked(self._finish())
        for chunk in self.chunks[position:]:
            if not await put(chunk):
                return False
        return True

    def _finish(self) -> Skeleton:
        if self._scanner is None:
            return scan(self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks))
        return self._scanner.finish()
