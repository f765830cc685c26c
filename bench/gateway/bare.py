"""A relay that copies and does nothing else: what Python and uvloop can do at most on this machine.

It reads a request into memory that it uses again, sends it on in one write, and passes back what comes. No
check, no log, no permit, no choice.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING, cast

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_HEAD_BYTES = 64 * 1024


class Buffers:
    """Memory for requests, used again."""

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        """A buffer of at least that size."""
        place = next((n for n, buffer in enumerate(self._free) if len(buffer) >= size), None)
        return bytearray(size) if place is None else self._free.pop(place)

    def give(self, buffer: bytearray) -> None:
        """The upstream has answered, so nobody needs the request any more."""
        self._free.append(buffer)


class Upstream(asyncio.Protocol):
    """The connection to the upstream of one client."""

    def __init__(self, answer: Callable[[bytes], None]) -> None:
        self._answer = answer

    def data_received(self, data: bytes) -> None:
        self._answer(data)


class Client(asyncio.BufferedProtocol):
    """One client. Its requests come one after the other."""

    def __init__(self, buffers: Buffers, upstream: tuple[str, int]) -> None:
        self._buffers, self._address = buffers, upstream
        self._head = bytearray(_HEAD_BYTES)
        self._request: bytearray | None = None
        self._filled = self._left = self._size = 0
        self._upstream: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._upstream is not None:
            self._upstream.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._left and self._request is not None:
            return memoryview(self._request)[self._filled : self._filled + self._left]
        return memoryview(self._head)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._left:
            self._left -= nbytes
        elif not self._begin():
            return
        if not self._left:
            self._size, self._filled = self._filled, 0
            asyncio.get_running_loop().create_task(self._send())

    def _begin(self) -> bool:
        """Find the end of a request's head, and room for its body."""
        end = self._head.find(b"\r\n\r\n", 0, self._filled) + 4
        if end < 4:
            return False
        length = _LENGTH.search(self._head, 0, end)
        size = end + (int(length[1]) if length else 0)
        self._request = self._buffers.take(size)
        self._request[: self._filled] = memoryview(self._head)[: self._filled]
        self._left = size - self._filled
        return True

    async def _send(self) -> None:
        if self._upstream is None:
            loop = asyncio.get_running_loop()
            made, _ = await loop.create_connection(lambda: Upstream(self._answer), *self._address)
            self._upstream = made
        if self._request is not None:
            self._upstream.write(memoryview(self._request)[: self._size])

    def _answer(self, data: bytes) -> None:
        self._transport.write(data)
        if self._request is not None:
            self._buffers.give(self._request)
            self._request = None


async def serve(port: int, upstream: str) -> None:
    """Listen for ever."""
    host, _, number = upstream.partition(":")
    buffers = Buffers()
    server = await asyncio.get_running_loop().create_server(
        lambda: Client(buffers, (host, int(number))), "127.0.0.1", port
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2]))
