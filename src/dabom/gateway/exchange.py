"""The client's side of one request: what has been sent to it, and how it is told of an error."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from dabom.errors import ClientGone, DabomError, Unavailable
from dabom.gateway import headers as head
from dabom.gateway import sse
from dabom.gateway.usage import Tail

if TYPE_CHECKING:
    from collections.abc import Callable

    from dabom.gateway.account import Record
    from dabom.gateway.admission import Permit
    from dabom.gateway.asgi import Headers, Receive, Scope, Send
    from dabom.gateway.keys import KeyUse
    from dabom.gateway.masking import AnswerMask, Masking

ABORT = "dabom.abort"
"""Key of a scope: a function that drops the connection with what is still to be sent."""
LOST = "dabom.lost"
"""Key of a scope: a list of functions that are called when the connection is lost."""
_LINGER_S = 1.0
_TELL_S = 5.0
_RETRY_AFTER_S = 1.0


class Exchange:
    """Sends one answer, in one of three forms: whole, piece by piece, or as events."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, record: Record) -> None:
        self.headers: Headers = scope["headers"]
        self.receive = receive
        self.record = record
        self.started = False
        self.events = False
        self.sending = False
        """The client is being waited for."""
        self.uploading = False
        """The body has not been received whole."""
        self.between = True
        """An event may be sent now."""
        self.masking: Masking | None = None
        """Masks what is sent, when it is switched on."""
        self.tail = Tail()
        """The end of the answer, for the usage in it."""
        self.notes: Headers = []
        """Headers of the gateway's own, for whatever answer there will be."""
        self.key: KeyUse
        """Whose request it is; set before it is served."""
        self.room: Permit | None = None
        """The bytes that its body may have."""
        self.hush: Callable[[], object] = lambda: None
        """Stops whoever keeps a stream alive that has been opened early."""
        self.remains: Callable[[DabomError], bytes] | None = None
        """What a batch still has to say when it is cut."""
        self._loop = asyncio.get_running_loop()
        self._send = send
        self._mask: AnswerMask | None = None
        self._abort: Callable[[], None] | None = scope.get(ABORT)

    def received(self, size: int) -> None:
        """The body is there, with `size` bytes: no more room is needed."""
        self.uploading = False
        if self.room is not None:
            self.room.claims(self.room.claim._replace(tokens=size))

    def now(self) -> float:
        """The time by the clock of the event loop."""
        return self._loop.time()

    async def start(self, status: int, headers: Headers, *, masked: bool = False) -> None:
        """Send the head. `masked`: what follows has been masked already."""
        if self.masking is not None and not masked:
            headers, self._mask = self.masking.begin(headers)
        if self.notes:
            headers = [*headers, *self.notes]
        self.started = True
        self.record.status = status
        self.events = sse.readable(headers)
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, chunk: bytes) -> None:
        """Send a piece of the body."""
        self.tail.add(chunk)
        if self._mask is not None:
            chunk = self._mask.add(chunk)
            if not chunk:
                return
        self.sending = True
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        self.sending = False
        self.record.bytes_out += len(chunk)

    async def end(self, last: bytes = b"") -> None:
        """The answer is whole with its `last` piece."""
        if self.uploading:
            if last:
                await self.write(last)
            await self._linger()
            last = b""
        self.tail.add(last)
        if self._mask is not None:
            last, self._mask = self._mask.add(last) + self._mask.end(), None
        self.sending = True
        await self._send({"type": "http.response.body", "body": last, "more_body": False})
        self.sending = False
        self.record.bytes_out += len(last)
        if self.uploading:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once, with whatever is on its way."""
        if self._abort is not None:
            self._abort()

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Send an answer that is there as a whole."""
        self.tail.add(body)
        if self.masking is not None:
            headers, mask = self.masking.begin(headers)
            body = body if mask is None else mask.add(body) + mask.end()
        await self.start(status, [*headers, (b"content-length", str(len(body)).encode())], masked=True)
        self.record.bytes_out += len(body)
        self.sending = True
        await self._send({"type": "http.response.body", "body": body, "more_body": self.uploading})
        self.sending = False
        if self.uploading:
            await self.end()

    async def fail(self, error: DabomError) -> None:
        """Tell the client of an error, in the form that is still open.

        An answer that has begun never ends as a whole one: the connection is closed without the end that HTTP
        would need. A batch ends in order when every item has got its line.
        """
        if self.sending and error.status == 504:
            error = ClientGone("the client took nothing of its answer")
        self.record.code = error.code
        self.record.status = self.record.status or error.status
        if isinstance(error, ClientGone):
            self.abort()
            return
        try:
            async with asyncio.timeout(_TELL_S):
                await self._tell(error)
        except TimeoutError:
            self.abort()

    async def _tell(self, error: DabomError) -> None:
        if not self.started:
            await self._refuse(error)
        elif self.remains is not None:
            await self.write(self.remains(error))
            await self.end()
        elif self.events:
            await self.write((b"" if self.between else b"\n\n") + sse.error_event(error))

    async def _refuse(self, error: DabomError) -> None:
        headers: Headers = [
            (b"content-type", b"application/json"),
            (b"x-request-id", self.record.request_id.encode()),
        ]
        after_s = error.retry_after_s or (_RETRY_AFTER_S if isinstance(error, Unavailable) else None)
        if after_s is not None:
            headers += head.retry_after(after_s).items()
        if self.uploading:
            headers.append((b"connection", b"close"))
        await self.whole(error.status, headers, msgspec.json.encode(error.body()))

    async def _linger(self) -> None:
        """Take and drop for a moment what the client still sends.

        A connection that is closed on unread bytes is reset, and many clients lose the answer with it.
        """
        try:
            async with asyncio.timeout(_LINGER_S):
                while True:
                    message = await self.receive()
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        return
        except TimeoutError:
            return
