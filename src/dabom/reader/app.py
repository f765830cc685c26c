"""The ASGI app: three routes of an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

from dabom.errors import BodyTooLarge, ClientError, ClientGone, DabomError, InvalidMedia
from dabom.reader import answers
from dabom.reader.ask import read_ask
from dabom.reader.findings import Reading
from dabom.reader.settings import MAX_MODEL_LEN, MODEL_ALIAS, MODEL_ID, ReaderSettings
from dabom.reader.words import describe
from dabom.reader.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping
    from typing import TypeAlias

    from dabom.reader.ask import Ask

    Scope: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_CHAT = "/v1/chat/completions"


class ReaderApp:
    """An ASGI app.

    Its worker processes start with the lifespan, or else with the first picture, and end with the lifespan or
    `close`.
    """

    def __init__(self, settings: ReaderSettings | None = None) -> None:
        self._settings = settings or ReaderSettings()
        self._workers: Workers | None = None
        self._started = int(time.time())

    @property
    def busy(self) -> int:
        """Requests that are being looked at now."""
        return self._workers.busy if self._workers else 0

    async def close(self) -> None:
        """End the worker processes."""
        if self._workers is not None:
            await self._workers.close()
            self._workers = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event of the ASGI protocol."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._route(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._ready_workers().start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _ready_workers(self) -> Workers:
        if self._workers is None:
            self._workers = Workers(self._settings)
        return self._workers

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        allowed = {"/health": "GET", "/v1/models": "GET", _CHAT: "POST"}.get(scope["path"])
        if allowed is None:
            await _send_json(send, 404, b'{"detail":"Not Found"}')
        elif scope["method"] not in ({"GET", "HEAD"} if allowed == "GET" else {"POST"}):
            await _send_json(send, 405, b'{"detail":"Method Not Allowed"}', [(b"allow", allowed.encode())])
        elif scope["path"] == "/health":
            await _send_json(send, 200, b"")
        elif scope["path"] == "/v1/models":
            await _send_json(send, 200, self._models())
        else:
            await self._chat(scope, receive, send)

    def _models(self) -> bytes:
        cards = [
            {
                "id": name,
                "object": "model",
                "created": self._started,
                "owned_by": "dabom-reader",
                "root": MODEL_ID,
                "parent": None,
                "max_model_len": MAX_MODEL_LEN,
            }
            for name in (MODEL_ID, MODEL_ALIAS)
        ]
        return json.dumps({"object": "list", "data": cards}, separators=(",", ":")).encode()

    async def _chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await _receive_body(receive, self._settings.max_body_bytes)
            kind = dict(scope["headers"]).get(b"content-type", b"application/json")
            if kind.split(b";")[0].strip().lower() != b"application/json":
                raise ClientError("Unsupported Media Type: only 'application/json' is allowed")
            ask = read_ask(body, self._settings.max_parts)
            del body
            reading = await self._read_while_connected(ask, receive)
            if reading.fault is not None:
                raise (DabomError if reading.broken else InvalidMedia)(reading.fault, param=reading.param)
            answer = answers.make_answer(ask, reading.content, reading.media_tokens)
            if answer.prompt_tokens > MAX_MODEL_LEN:
                raise ClientError(
                    f"This model's maximum context length is {MAX_MODEL_LEN} tokens. "
                    f"However, your request has {answer.prompt_tokens} input tokens."
                )
        except ClientGone:
            return
        except DabomError as fault:
            await _send_json(send, fault.status, answers.error(fault))
            return
        if ask.stream:
            await _send_events(send, ask, answer)
        else:
            await _send_json(send, 200, answers.whole(ask, answer))

    async def _read_while_connected(self, ask: Ask, receive: Receive) -> Reading:
        job = ask.job
        if not job.parts and not job.json_mode and not job.schema:
            return Reading(describe([], job.language))
        looking = asyncio.ensure_future(self._ready_workers().read(job))
        leaving = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({looking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not looking.done():
                raise ClientGone("the client left while its media was being looked at")
            return looking.result()
        finally:
            for task in (looking, leaving):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, DabomError):
                    await task


async def _receive_body(receive: Receive, limit: int) -> bytes:
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone("the client left while uploading")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(f"body has more than the limit of {limit:,} bytes")
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_json(
    send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    head = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *(headers or []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def _send_events(send: Send, ask: Ask, answer: answers.Answer) -> None:
    head = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    for event in answers.events(ask, answer):
        await send({"type": "http.response.body", "body": event, "more_body": True})
        # Lets the server write each event as it comes, as a model would.
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b""})
