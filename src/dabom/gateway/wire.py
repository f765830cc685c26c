"""HTTP/1.1 to an upstream, with nothing between the bytes and the relay.

A general client builds objects for every request that a relay never looks at. This one writes a head, passes
on the chunks that it is given, and lets `httptools` (llhttp, in C) find the ends. See docs/decisions/005.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import httptools

from dabom.errors import UpstreamBroken
from dabom.gateway.headers import find

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MAX_HEAD_BYTES = 256 * 1024
_MAX_HELD_BYTES = 512 * 1024
_WRITE_HIGH_BYTES, _WRITE_LOW_BYTES = 1024 * 1024, 256 * 1024
_FRAMES = (b"content-length", b"transfer-encoding")


class Wire(asyncio.Protocol):
    """One connection. It carries one request at a time."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.rests_since = 0.0
        self.writing_paused = False
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._reading_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(_WRITE_HIGH_BYTES, _WRITE_LOW_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is not None:
            self._answer.cut(exc)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.close()  # nobody has asked
        else:
            self._answer.feed(data)

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False
        if self._answer is not None:
            self._answer.wake()

    @property
    def open(self) -> bool:
        """Whether something can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, answer: Answer, pieces: Sequence[bytes | memoryview]) -> None:
        """Send a request, or queue what the kernel does not take at once; lost when the connection is."""
        self._answer = answer
        if self.open and self._transport is not None:
            self._transport.writelines(pieces)

    def rest(self) -> None:
        """The answer is whole; the connection may carry another request."""
        self._answer = None
        self.rests_since = self.loop.time()

    def pause_reading(self) -> None:
        """Let the upstream wait."""
        if self._transport is not None and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Let it go on."""
        if self._reading_paused:
            self._reading_paused = False
            if self._transport is not None:
                self._transport.resume_reading()

    def close(self) -> None:
        """Drop the connection, and whatever is on its way."""
        if self._transport is not None:
            self._transport.abort()


class Answer:
    """One answer while it arrives. `headers` have their names in lower case."""

    def __init__(self, wire: Wire, name: str, *, bodiless: bool, release: Callable[[Wire], None]) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.framed = False
        """Whether its end can be told from a cut."""
        self.sent = False
        """The request has been sent whole."""
        self._wire = wire
        self._name = name
        self._bodiless = bodiless
        self._release = release
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._size = 0
        self._dry = 0
        self._fed_body = False
        self._begun = self._ended = self._closed = self._keeps_alive = False
        self._flaw = ""
        self._waiter: asyncio.Future[None] | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing is to come beyond what has been read."""
        return self._ended and not self._parts

    async def ask(self, head: bytes, body: Sequence[bytes | memoryview]) -> None:
        """Send the request whose answer this is, until the upstream takes no more: it answers, or is gone."""
        self._wire.ask(self, (head, *body))
        while self._wire.writing_paused and self._takes_more:
            await self._wait()
        self.sent = not self._wire.writing_paused and not self._flaw

    @property
    def _takes_more(self) -> bool:
        return not self._begun and not self._flaw

    async def head(self) -> None:
        """Wait for status and headers. Raises `UpstreamBroken`."""
        while not self._begun:
            if self._flaw:
                raise self._broken()
            await self._wait()

    async def read(self) -> bytes:
        """The next bytes of the body, empty at its end. Raises `UpstreamBroken` when it ends too early."""
        while not self._parts:
            if self._ended:
                return b""
            if self._flaw:
                raise self._broken()
            await self._wait()
        chunk = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        self._wire.resume_reading()
        return chunk

    async def read_all(self, limit: int, touch: Callable[[], None] = lambda: None) -> bytes:
        """The body, cut at `limit` bytes; `touch` is called with every piece that comes."""
        parts, size = list[bytes](), 0
        while size < limit and (chunk := await self.read()):
            touch()
            parts.append(chunk)
            size += len(chunk)
        return b"".join(parts)[:limit]

    def find(self, name: bytes) -> bytes | None:
        """The value of the first header of that name."""
        return find(self.headers, name)

    def close(self) -> None:
        """Give the connection back when it can carry another request, else drop it."""
        if self._closed:
            return
        self._closed = True
        whole = self._ended and self.sent and not self._flaw and not self._bodiless
        if whole and self._keeps_alive and self._wire.open:
            self._wire.rest()
            self._release(self._wire)
        else:
            self._wire.close()

    def feed(self, data: bytes) -> None:
        """Take bytes from the connection."""
        if self._ended:
            self._flaw = "more than an answer"
            return
        if not self._begun:
            self._size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail("not HTTP/1.1")
            return
        self._dry = 0 if self._fed_body or self._ended else self._dry + len(data)
        self._fed_body = False
        if self._dry > _MAX_HEAD_BYTES or (not self._begun and self._size > _MAX_HEAD_BYTES):
            self._fail("endless trailers" if self._begun else "endless head")
            return
        if self._size > _MAX_HELD_BYTES:
            self._wire.pause_reading()
        self.wake()

    def cut(self, error: Exception | None) -> None:
        """The connection is gone. An answer without framing ends with it, unless it was reset."""
        if self._begun and not self.framed and error is None:
            self._ended = True
        elif not self._ended:
            self._flaw = self._flaw or ("connection closed" if error is None else type(error).__name__)
        self.wake()

    def wake(self) -> None:
        """Something has changed for whoever waits."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def on_message_begin(self) -> None:
        if self._ended:
            raise ValueError(
                "more than an answer"
            )  # stops the parser: it would put a second one into the first

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._begun:
            return  # a trailer; the head has been passed on
        name = name.lower()
        if name in _FRAMES:
            self.framed = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if not 100 <= self.status < 200:
            self._begun = True
            self._size = 0
            self._ended = self._bodiless  # a HEAD has the length of a body and none

    def on_body(self, chunk: bytes) -> None:
        self._fed_body = True
        if not self._bodiless:
            self._parts.append(chunk)
            self._size += len(chunk)

    def on_message_complete(self) -> None:
        if 100 <= self.status < 200:  # 100 Continue and its like come before the answer
            self.headers, self.framed = [], False
        else:
            self._ended = True
            self._keeps_alive = self._parser.should_keep_alive()  # it forgets when the next message may begin

    def _fail(self, flaw: str) -> None:
        self._flaw = flaw
        self._wire.close()
        self.wake()

    def _broken(self) -> UpstreamBroken:
        return UpstreamBroken(f"upstream {self._name} broke off before its answer was whole ({self._flaw})")

    async def _wait(self) -> None:
        self._waiter = self._wire.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
