"""The lines of a batch's answer, and the bytes that it may have in flight."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from dabom.errors import DabomError, Unavailable, UpstreamBroken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dabom.gateway.items import Item

_BREAKS = bytes.maketrans(b"\r\n", b"  ")


def answered(item: Item, status: int, elapsed_ms: int, text: bytes) -> bytes:
    """The line of an item that an upstream has answered; `text` is its body.

    Raises `UpstreamBroken` when a good answer is not JSON. A line break can only stand between JSON tokens:
    a space can take its place.
    """
    head = b'{"id":%b,"status":%d,"elapsed_ms":%d,' % (item.id, status, elapsed_ms)
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
        text.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if status < 400:
            raise UpstreamBroken("the upstream's answer is not JSON") from None
        text = msgspec.json.encode(text.decode("utf-8", "replace"))
    text = text.translate(_BREAKS)
    if status >= 400:
        return head + b'"error":%b,"code":"upstream_error"}\n' % text
    return head + b'"body":%b}\n' % text


def failed(ident: bytes, error: DabomError) -> bytes:
    """The line of an item that no upstream has answered. As in the seed, our own faults are a 500."""
    status = error.status if isinstance(error, Unavailable) or error.status < 500 else 500
    message = msgspec.json.encode(error.message)
    return b'{"id":%b,"status":%d,"elapsed_ms":0,"error":%b,"code":"%b"}\n' % (
        ident,
        status,
        message,
        error.code.encode(),
    )


class Lines:
    """Finished lines on their way to the client; whoever finishes one never waits."""

    def __init__(self) -> None:
        self.size = 0
        self._waiting: deque[bytes] = deque()
        self._closed = False
        self._news = asyncio.Event()

    def put(self, line: bytes) -> None:
        """Add a line."""
        self._waiting.append(line)
        self.size += len(line)
        self._news.set()

    def close(self) -> None:
        """No more lines will come."""
        self._closed = True
        self._news.set()

    def take(self) -> bytes:
        """All lines that wait, as one piece."""
        text = b"".join(self._waiting)
        self._waiting.clear()
        self.size = 0
        return text

    async def pieces(self) -> AsyncIterator[bytes]:
        """The lines as they come."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                yield self.take()
            if self._closed:
                return


class Budget:
    """Bytes of items that are waiting or running. One item that is larger than all of it may go alone."""

    def __init__(self, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._freed = asyncio.Event()

    async def take(self, size: int) -> None:
        """Wait until there is room. One caller at a time."""
        while self.used and self.used + size > self._limit:
            self._freed.clear()
            await self._freed.wait()
        self.used += size

    def give(self, size: int) -> None:
        """Give the bytes of a finished item back."""
        self.used -= size
        self._freed.set()
