"""uvicorn's HTTP protocol with what it lacks: limits for a head, a body without copies, JSON errors."""

from __future__ import annotations

import asyncio
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dabom.app.intake import Intake
from dabom.app.segments import Segments
from dabom.errors import ClientError, DabomError, HeadersTooLarge, HeaderTimeout
from dabom.gateway import ABORT, LOST
from dabom.gateway.headers import content_length, find, request_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from dabom.gateway import Clocks, Limits

_SHARED_BYTES = 64 * 1024
_SEGMENT_BYTES, _SEGMENTS_KEPT = 512 * 1024, 64
_DIRECT_BYTES = 32 * 1024
"""Of a body that has come to this much, the rest is read to where it stays: a trickle gets no segment."""
_ONE_WRITE_BYTES = 64 * 1024
_EVENTS = (
    "connection_made",
    "connection_lost",
    "eof_received",
    "pause_writing",
    "resume_writing",
    "get_buffer",
    "buffer_updated",
)
_LOOK_S = 0.1
_LINGER_S = 1.0
_LINGER_BYTES = 1024 * 1024
_CLOSE, _CLOSE_WAIT = 7, 8  # states of Linux' TCP: reset by the client, ended by the client


def build_protocol(
    clocks: Clocks, limits: Limits, refused: Callable[[str, DabomError], None] = lambda _, __: None
) -> type[asyncio.Protocol]:
    """The protocol class for uvicorn, which makes one object of it per connection.

    `refused` is told the id and the error of a request that the app never sees.
    """

    class Connection(_Connection):
        head_timeout_s = clocks.header_timeout_s
        max_head_bytes = limits.max_header_bytes
        shared = memoryview(bytearray(_SHARED_BYTES))
        segments = Segments(_SEGMENT_BYTES, _SEGMENTS_KEPT)

    Connection.refused = staticmethod(refused)

    class Socket(_Socket):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(Connection(*args, **kwargs))

    return cast("type[asyncio.Protocol]", Socket)  # uvicorn only asks for something that makes protocols


class _Outlet:
    """The transport of one answer. Its head waits for the first piece of its body, but no longer than a turn.

    uvicorn writes them one by one, and uvloop makes a system call of each.
    """

    def __init__(self, cycle: RequestResponseCycle, loop: asyncio.AbstractEventLoop) -> None:
        self._cycle = cycle
        self._loop = loop
        self._transport = cycle.transport
        self._head = b""
        self._begun = False
        cycle.transport = self  # type: ignore[assignment]

    def write(self, data: bytes) -> None:
        """Write, or hold the head."""
        if self._cycle.response_started and not self._begun:
            self._begun = True
            self._head = data
            self._loop.call_soon(self.flush)
        elif self._head and len(data) <= _ONE_WRITE_BYTES:
            data, self._head = self._head + data, b""
            self._transport.write(data)
        else:
            self.flush()
            self._transport.write(data)

    def flush(self) -> None:
        """Write the head if it still waits."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def close(self) -> None:
        """Close the connection when all is written."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether nothing can be written."""
        return self._transport.is_closing()


class _Socket(asyncio.BufferedProtocol):
    """What the event loop sees of a connection.

    uvicorn's protocol is an `asyncio.Protocol`: for one, a loop makes new bytes of everything that it reads.
    """

    def __init__(self, connection: _Connection) -> None:
        for name in _EVENTS:
            setattr(self, name, getattr(connection, name))


class _Connection(HttpToolsProtocol):
    head_timeout_s: float
    max_head_bytes: int
    shared: memoryview
    """What all connections read heads and small bodies into; it is copied at once."""
    segments: Segments
    refused: Callable[[str, DabomError], None]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._clock: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._in_head = True
        self._refused = False
        self._intake: Intake | None = None
        self._body_left = 0
        self._body_came = self._ended = False
        self._body_bytes = self._body_got = 0
        self._between_bytes = 0
        self._segment: memoryview | None = None
        self._filled = 0
        self._direct = False
        self._look: asyncio.TimerHandle | None = None
        self._lost: list[Callable[[], None]] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._clock = self.loop.call_later(self.head_timeout_s, self._time_out)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        super().connection_lost(exc)
        for tell in tuple(self._lost):  # of all requests; uvicorn itself tells the latest of a pipeline alone
            tell()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: those of a large body to where they stay."""
        self._direct = (
            self._body_left >= _DIRECT_BYTES and self._body_got >= _DIRECT_BYTES and not self._refused
        )
        if not self._direct:
            return self.shared
        if self._segment is None or self._filled == len(self._segment):
            self._segment, self._filled = self.segments.take(), 0
        return self._segment[self._filled : self._filled + self._body_left]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        if self._direct and self._segment is not None:
            begin, self._filled = self._filled, self._filled + nbytes
            self.data_received(self._segment[begin : self._filled])
        else:
            self.data_received(bytes(self.shared[:nbytes]))

    def data_received(self, data: bytes | memoryview) -> None:
        if self._refused:
            self._head_bytes += len(data)
            if self._head_bytes > self.max_head_bytes + _LINGER_BYTES:
                self.transport.abort()
            return
        self._body_came = False
        rest = data
        while rest and not self._refused:
            self._ended, self._body_bytes = False, 0
            data, rest = rest, self._pass_body(rest) if self._body_left else self._parse(rest)
        if self._look is None and self.flow.read_paused:
            self._look = self.loop.call_later(_LOOK_S, self._look_at_peer)
        if self._refused:
            return
        if not self._in_head:
            self._limit_between(data)
            return
        self._head_bytes += self._measure_head(data)
        if self._head_bytes > self.max_head_bytes:
            self._refuse_head()
        elif self._clock is None:  # most heads come in one piece and need no clock
            self._clock = self.loop.call_later(self.head_timeout_s, self._time_out)

    def _parse(self, data: bytes | memoryview) -> bytes | memoryview:
        """Parse, and return what must be looked at anew.

        That is what stands behind a head with Upgrade, which is declined, as a server may: Java's client asks
        for h2c with each request. The parser takes such a head for all of its request.
        """
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._begin_parser()
            return data[upgrade.args[0] :]
        except httptools.HttpParserError:
            self.send_400_response("")
        return b""

    def _measure_head(self, data: bytes | memoryview) -> int:
        """Bytes of the head that `data` ends in; before it may stand requests that are whole."""
        if not self._ended:
            return len(data)
        return max(1, len(data) - (bytes(data).rfind(b"\r\n\r\n") + 4) - self._body_bytes)

    def _limit_between(self, data: bytes | memoryview) -> None:
        """Trailers and extensions of chunks are dropped, and have the limit of a head."""
        dry = self.cycle.more_body and not self._body_came
        self._between_bytes = self._between_bytes + len(data) if dry else 0
        if self._between_bytes > self.max_head_bytes:
            self._refuse_head()

    def _begin_parser(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does

    def on_header(self, name: bytes, value: bytes) -> None:
        if (
            self._in_head
        ):  # a trailer must not pass for a header: it has not been seen when the head was judged
            super().on_header(name, value)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]
        self.scope[LOST] = self._lost  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self._stop_clock()
        self._in_head = False
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.max_head_bytes:
            self._refuse_head()
        if self.parser.should_upgrade() and find(self.headers, b"transfer-encoding") is not None:
            self._refuse(ClientError("a request with Upgrade must have a Content-Length; leave Upgrade out"))
        if not self._refused:
            super().on_headers_complete()
            self._body_bytes = self._body_got = 0
            self._intake = Intake(self.cycle, self.loop)
            _Outlet(self.cycle, self.loop)
            self._body_left = content_length(self.headers) or 0

    def on_body(self, body: bytes | memoryview) -> None:
        self._body_got += len(body)
        self._body_left = max(0, self._body_left - len(body))
        self._body_came = True
        self._body_bytes += len(body)
        if not self._refused and not self.cycle.response_complete and self._intake is not None:
            self._intake.put(body, self._direct)

    def _pass_body(self, data: bytes | memoryview) -> bytes | memoryview:
        """Take the rest of a body whose length is known past the parser, which would copy it; what is behind.

        Behind it a parser begins that knows nothing of it.
        """
        body = data[: self._body_left]
        self.on_body(body)
        if not self._body_left:
            self._segment = None
            self._begin_parser()
            self.on_message_complete()
        return data[len(body) :]

    def on_message_complete(self) -> None:
        self._ended = True
        if not self._refused and not self._body_left:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(ClientError("this is not HTTP/1.1"))

    def _refuse_head(self) -> None:
        self._refuse(HeadersTooLarge(f"the head of the request has more than {self.max_head_bytes:,} bytes"))

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _time_out(self) -> None:
        self._clock = None
        if self.transport.is_closing() or not self._in_head:
            return
        if self._head_bytes:
            self._refuse(HeaderTimeout(f"the head of the request did not come in {self.head_timeout_s:g} s"))
        else:
            self.transport.close()

    def _look_at_peer(self) -> None:
        """A socket that is not read does not show the end of its connection; the kernel (Linux) knows."""
        self._look = None
        if self.transport.is_closing() or not self.flow.read_paused:
            return
        if _tcp_state(self.transport) in (_CLOSE, _CLOSE_WAIT):
            self.transport.abort()
        else:
            self._look = self.loop.call_later(_LOOK_S, self._look_at_peer)

    def _refuse(self, error: DabomError) -> None:
        """Answer without the app, which has seen no whole request, and close."""
        if self._refused:
            return
        self._refused = True
        self._stop_clock()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            if self.pipeline or cycle.response_started or not cycle.more_body:
                self.transport.close()  # an earlier request of this connection is being answered
                return
            cycle.disconnected = True  # its body is broken; the app gets no more of it and can say no more
            cycle.message_event.set()
        body = msgspec.json.encode(error.body())
        line = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
        fields = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
        ident = request_id(self.headers or [])
        self.transport.write(f"{line}{fields}x-request-id: {ident}\r\n\r\n".encode() + body)
        self.refused(ident, error)
        # what the client still sends is dropped for a moment: a close on unread bytes is a reset, which may
        # overtake the answer
        self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.close)


def _tcp_state(transport: asyncio.Transport) -> int | None:
    option = getattr(socket, "TCP_INFO", None)
    if option is None:
        return None
    try:
        info: bytes = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, option, 1)
    except OSError:
        return _CLOSE
    return info[0]
