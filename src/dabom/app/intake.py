"""The way of a body from the socket to the app: no copies, and no more turns of the loop than needed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from dabom.gateway.asgi import Message

_HIGH_WATER_BYTES = 2 * 1024 * 1024
_BATCH_BYTES = 512 * 1024
_QUIET_S = 0.002
_SMALL_BYTES = 1024


class Intake:
    """The chunks of one body between the parser and the app.

    uvicorn adds each chunk to a bytearray and copies that again for the app. Here it gets what was parsed.
    """

    def __init__(self, cycle: RequestResponseCycle, loop: asyncio.AbstractEventLoop) -> None:
        self._cycle = cycle
        self._loop = loop
        self._wait = cycle.receive
        self._bell: asyncio.TimerHandle | None = None
        self._chunks: deque[bytes | memoryview] = deque()
        self._size = 0
        cycle.receive = self.receive  # type: ignore[method-assign,assignment]

    def put(self, chunk: bytes | memoryview, more_at_once: bool = False) -> None:
        """Take a chunk. The app is not woken for each one when `more_at_once` can be expected."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size > _HIGH_WATER_BYTES:
            self._cycle.flow.pause_reading()
        if not more_at_once or self._size >= _BATCH_BYTES:
            self._cycle.message_event.set()
        elif self._bell is None:
            self._bell = self._loop.call_later(_QUIET_S, self._ring)

    def _ring(self) -> None:
        self._bell = None
        self._cycle.message_event.set()

    async def receive(self) -> Message:
        """ASGI's `receive`; one message is one chunk."""
        cycle = self._cycle
        while not self._chunks:
            message: Message = await self._wait()  # type: ignore[assignment]  # also lets the socket be read
            if not self._chunks and (message["type"] == "http.disconnect" or not message["more_body"]):
                return message
        if self._size < len(self._chunks) * _SMALL_BYTES:  # a message for each few bytes would cost far more
            chunk: bytes | memoryview = b"".join(self._chunks)
            self._chunks.clear()
        else:
            chunk = self._chunks.popleft()
        self._size -= len(chunk)
        if not self._chunks:
            cycle.flow.resume_reading()
        return {"type": "http.request", "body": chunk, "more_body": bool(self._chunks) or cycle.more_body}
