"""A request's body while it arrives: bounded in size and in silence, checked as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dabom.errors import BodyTooLarge, ClientGone, UploadTimeout
from dabom.gateway.scan import WHOLE_BYTES, Scanner, scan

if TYPE_CHECKING:
    from dabom.errors import DabomError
    from dabom.gateway.asgi import Receive
    from dabom.gateway.guard import Guard
    from dabom.gateway.scan import Skeleton


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

    async def next(self) -> bytes | memoryview:
        """The next bytes; empty only when the body has ended."""
        while not self.ended:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone("the client left while it was uploading")
            chunk: bytes | memoryview = message.get("body", b"")
            self.size += len(chunk)
            self.ended = not message.get("more_body", False)
            if self.size > self._limit:
                raise self._error(f"the body has more than {self._limit:,} bytes, which is the limit")
            if chunk:
                return chunk
        return b""


class JsonUpload(Upload):
    """A JSON body. Its chunks are kept as they came: one copy, which can be sent more than once."""

    def __init__(self, receive: Receive, length: int | None, limit: int, guard: Guard) -> None:
        super().__init__(receive, length, limit)
        self.chunks: list[bytes | memoryview] = []
        self._guard = guard
        self._scanner: Scanner | None = None

    async def next(self) -> bytes | memoryview:
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

    def _finish(self) -> Skeleton:
        if self._scanner is None:
            return scan(b"".join(self.chunks))
        return self._scanner.finish()
