"""A request's body while it arrives: bounded in size and in silence, checked as it comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dabom.errors import BodyTooLarge, ClientGone, DabomError, UploadTimeout
from dabom.gateway.scan import WHOLE_BYTES, Scanner, scan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

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
        guard.limit_silence(seconds, UploadTimeout(f"no byte of the body came for {seconds:g} s"))

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


class Stalled(DabomError):
    """An upload that was flowing on keeps its upstream waiting; it must be received first."""


class JsonUpload(Upload):
    """A JSON body. Its chunks are kept as they came: one copy, which can be sent more than once."""

    def __init__(self, receive: Receive, length: int | None, limit: int, guard: Guard) -> None:
        super().__init__(receive, length, limit)
        self.chunks: list[bytes] = []
        self.flaw: DabomError | None = None
        """Why a body that was flowing on has stopped."""
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
    def body(self) -> AsyncIterator[bytes] | bytes:
        """The whole body, to be sent once; it may be asked for again."""
        if len(self.chunks) == 1 and self.size <= WHOLE_BYTES:
            return self.chunks[0]
        return self._pieces()

    async def _pieces(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk

    @property
    def flows(self) -> bool:
        """Whether so much has come so fast that the rest can be expected at once.

        Then the body may be sent on while it arrives, and its permit is not held for a slow client.
        """
        if self.length is None or self.ended or self.size < FLOW_START_BYTES:
            return False
        took = self._loop.time() - self._began
        return took * (self.length - self.size) / self.size < FLOW_WAIT_S / 2

    async def flow(self, checked: Callable[[Skeleton], None]) -> AsyncIterator[bytes]:
        """The body while it arrives. The last piece is held back until `checked` has seen the whole.

        Whatever stops it is kept in `flaw`; the upstream then has a request without an end, which it drops.
        """
        position, patience = 0, FLOW_WAIT_S
        try:
            while True:
                ready = len(self.chunks) - (1 if self.size == self.length else 0)
                while position < ready:
                    yield self.chunks[position]
                    position += 1
                if self.ended:
                    break
                patience = await self._next_within(patience)
            checked(self._finish())
        except DabomError as error:
            self.flaw = error
            raise
        for chunk in self.chunks[position:]:
            yield chunk

    async def _next_within(self, patience: float) -> float:
        """Receive a chunk; what is left of the patience."""
        asked = self._loop.time()
        try:
            async with asyncio.timeout(patience):
                await self.next()
        except TimeoutError:
            raise Stalled("the upload stalls") from None
        return patience - (self._loop.time() - asked)

    def _finish(self) -> Skeleton:
        if self._scanner is None:
            return scan(self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks))
        return self._scanner.finish()
