"""One accepted connection of a scripted upstream: parses requests, plays steps."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import httptools

from dabom.testing.seen import Seen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dabom.testing.steps import Step

_SOCKETS = Path("/proc/net/tcp")
_ESTABLISHED = "01"
_WATCH_S = 0.05


class Owner(Protocol):
    """What a connection asks of its upstream."""

    @property
    def read_body(self) -> bool: ...
    @property
    def keep_bodies(self) -> bool: ...
    def opened(self, connection: Connection) -> None: ...
    def closed(self, connection: Connection) -> None: ...
    def arrived(self, seen: Seen) -> None: ...
    def changed(self) -> None: ...
    def steps_at_head(self, seen: Seen) -> Iterable[Step] | None: ...
    def steps_at_end(self, seen: Seen) -> Iterable[Step]: ...


class Connection(asyncio.Protocol):
    """Requests are answered one after the other, in the order of arrival."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport
        self._parser: Any = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: list[tuple[str, str]] = []
        self._arriving: Seen | None = None
        self._playing: Seen | None = None
        self._queue: asyncio.Queue[Seen] = asyncio.Queue()
        self._writable = asyncio.Event()
        self._gone = asyncio.Event()
        self._paused = False
        self._continue_due = False
        self.task: asyncio.Task[None]

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one, but does not inherit
        # so that a wait for "writable" is a wait for the kernel
        self._transport.set_write_buffer_limits(high=0)
        # asyncio leaves it to the kernel on sockets that it has not made itself: small pieces then wait for
        # the peer's acknowledgement, 40 ms at times
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._writable.set()
        self._owner.opened(self)
        self.task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.write(
                b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
            self._transport.close()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()
        for seen in (self._playing, self._arriving):
            if seen is not None and seen.finished_at is None and seen.disconnected_at is None:
                seen.disconnected_at = time.monotonic()
        self._playing = None
        self.task.cancel()
        self._owner.closed(self)

    # httptools

    def on_message_begin(self) -> None:
        self._url, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        method = self._parser.get_method().decode("ascii")
        seen = Seen(method, self._url.decode("latin-1"), self._headers, keep_body=self._owner.keep_bodies)
        self._arriving = seen
        self._continue_due = (seen.header("expect") or "").lower() == "100-continue"
        if not self._owner.read_body:
            self._pause_reading()
        self._owner.arrived(seen)
        self._queue.put_nowait(seen)

    def on_body(self, piece: bytes) -> None:
        assert self._arriving is not None  # noqa: S101 - the parser's order
        self._arriving.add(piece)

    def on_message_complete(self) -> None:
        assert self._arriving is not None  # noqa: S101 - the parser's order
        self._arriving.end()
        self._arriving = None
        self._owner.changed()

    # Wire

    async def send(self, octets: bytes) -> None:
        self._transport.write(octets)
        await self._writable.wait()

    async def await_body(self) -> None:
        if self._playing is None or self._playing.complete:
            return
        if self._continue_due:
            self._continue_due = False
            await self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._resume_reading()
        await self._playing.wait_complete()

    async def stall(self) -> None:
        await self._gone.wait()

    async def reset(self) -> None:
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._finish()
        self._transport.abort()

    async def close(self) -> None:
        self._finish()
        self._transport.close()

    # own

    async def _serve(self) -> None:
        try:
            await self._answer_all()
        except Exception:
            self._transport.abort()  # a script that fails must not leave the peer waiting
            raise

    async def _answer_all(self) -> None:
        while not self._transport.is_closing():
            seen = self._playing = await self._queue.get()
            steps = self._owner.steps_at_head(seen)
            if steps is None:
                await self.await_body()
                steps = self._owner.steps_at_end(seen)
            for step in steps:
                await step.play(self)
                if self._transport.is_closing():
                    return
            await self._after(seen)

    async def _after(self, seen: Seen) -> None:
        """The script is over: go on with the connection as a server would."""
        if (seen.header("connection") or "").lower() == "close" or (self._paused and not seen.complete):
            await self.close()
            return
        self._finish()
        self._resume_reading()
        await seen.wait_complete()

    def _finish(self) -> None:
        if self._playing is not None:
            self._playing.finished_at = time.monotonic()
            self._playing = None
        self._owner.changed()

    @property
    def busy(self) -> bool:
        """A request is arriving or being answered."""
        return self._playing is not None or self._arriving is not None or not self._queue.empty()

    def abort(self) -> None:
        self._transport.abort()

    def _pause_reading(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(_WATCH_S, self._watch)

    def _resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    def _watch(self) -> None:
        if not self._paused or self._transport.is_closing():
            return
        if _peer_left(self._transport.get_extra_info("socket")):
            self._transport.abort()
        else:
            asyncio.get_running_loop().call_later(_WATCH_S, self._watch)


def _peer_left(sock: socket.socket) -> bool:
    """Whether the other end, on this machine, has closed its socket.

    While nobody reads, a FIN waits behind the unread bytes and never arrives, so the kernel's table of
    sockets is asked. Where there is none (not Linux) the answer is no.
    """
    try:
        table = _SOCKETS.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return False
    ours, theirs = f":{sock.getsockname()[1]:04X}", f":{sock.getpeername()[1]:04X}"
    states = [row[3] for row in map(str.split, table) if row[1].endswith(theirs) and row[2].endswith(ours)]
    return _ESTABLISHED not in states
