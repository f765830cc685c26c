"""The client: one object per endpoint."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Self

import msgspec

from dabom.client.answer import Answer, Delta, Health, Model, read_answer, read_delta, read_models
from dabom.client.batch import Item, Lines, json_upload, ndjson_upload
from dabom.client.connection import NO_RETRY, Clocks, Connection, Reply, Retry
from dabom.client.endpoint import endpoint
from dabom.client.refusal import refusal
from dabom.client.sse import Event, EventReader
from dabom.client.upload import Pieces
from dabom.errors import AnswerBroken, AskError, Refused

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Sequence
    from types import TracebackType

    from dabom.client.request import Request

CHAT_PATH = "/v1/chat/completions"
_STANDARD_CLOCKS = Clocks()


class Client:
    """An OpenAI-compatible endpoint: a Dabom gateway, vLLM, llama.cpp or MLX.

    `base_url` is a root (`http://host:8001`) or ends in `/v1`. At most `concurrency` requests run at
    once; the others wait. Errors are `dabom.errors.AskError` and never hold prompt or media.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        clocks: Clocks = _STANDARD_CLOCKS,
        concurrency: int = 16,
        retry: Retry = NO_RETRY,
    ) -> None:
        self._connection = Connection(endpoint(base_url), api_key, clocks, concurrency)
        self._clocks = clocks
        self._retry = retry

    @property
    def root(self) -> str:
        """The endpoint's root URL, without `/v1`."""
        return self._connection.endpoint.root

    async def __aenter__(self) -> Self:
        await self._connection.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connection.close()

    async def ask(self, request: Request, *, path: str = CHAT_PATH) -> Answer:
        """One whole answer."""
        async with self._connection.send("POST", path, _upload(request), self._retry) as reply:
            raw = await reply.read(self._clocks.idle_s)
            return read_answer(raw, reply.request_id)

    async def stream(self, request: Request, *, path: str = CHAT_PATH) -> AsyncGenerator[Delta, None]:
        """The answer as it is made. Enter it with `aclosing`: leaving early then frees the upstream at once.

        An error inside the stream raises Refused; an end without `[DONE]` raises AnswerBroken.
        """
        upload = _upload(request.streamed())
        async with self._connection.send("POST", path, upload, self._retry) as reply:
            if reply.content_type == "application/json":  # a server that does not stream
                answer = read_answer(await reply.read(self._clocks.idle_s), reply.request_id)
                yield Delta(
                    answer.text, answer.reasoning, answer.finish_reason, answer.usage, answer.tool_calls
                )
                return
            async with aclosing(_deltas(reply, self._clocks.idle_s, request.prompts)) as deltas:
                async for delta in deltas:
                    yield delta

    @asynccontextmanager
    async def batch(self, items: Sequence[Item]) -> AsyncIterator[Lines]:
        """The lines of a JSON batch: `async with client.batch(items) as lines: async for line in lines`."""
        upload = json_upload(items)
        async with self._connection.send("POST", "/chat/batch", upload, self._retry) as reply:
            yield Lines(reply, self._clocks.first_byte_s, upload.prompts)

    @asynccontextmanager
    async def batch_stream(self, items: Iterable[Item] | AsyncIterable[Item]) -> AsyncIterator[Lines]:
        """Like `batch`, with items taken from the iterator while lines come back; there is no `total`.

        A fault of the iterator itself is raised as it is.
        """
        prompts: set[str] = set()
        async with self._connection.send("POST", "/chat/batch", ndjson_upload(items, prompts)) as reply:
            yield Lines(reply, self._clocks.first_byte_s, prompts)

    async def models(self) -> list[Model]:
        """The models that the endpoint serves."""
        async with self._connection.send("GET", "/v1/models", None, self._retry) as reply:
            return read_models(await reply.read(self._clocks.idle_s), reply.request_id)

    async def health(self) -> Health:
        """Whether the endpoint is up: a gateway's `/healthz`, else a model server's `/health`."""
        for path in ("/healthz", "/health"):
            try:
                async with self._connection.send("GET", path) as reply:
                    await reply.read(self._clocks.idle_s)
                    return Health(reply.status == 200, reply.status, reply.request_id, path)
            except Refused as error:
                if error.status != 404:
                    return Health(False, error.status, error.request_id, path)
        return Health(False, 404, None, path)

    async def ready(self) -> bool:
        """Whether a gateway's `/readyz` says that an upstream can serve; False while nobody listens."""
        try:
            async with self._connection.send("GET", "/readyz") as reply:
                return reply.status == 200
        except AskError:
            return False


def _upload(request: Request) -> Pieces:
    return Pieces("application/json", request.pieces, request.prompts)


async def _deltas(
    reply: Reply, idle_s: float | None, prompts: tuple[str, ...]
) -> AsyncGenerator[Delta, None]:
    reader = EventReader()
    broken: AnswerBroken | None = None
    async with aclosing(reply.pieces(idle_s)) as pieces:
        async for piece in pieces:
            for event in reader.feed(piece):
                if event.data == "[DONE]" and broken is None:
                    return
                _raise_error_event(event, reply, prompts)
                if broken is not None:
                    raise broken
                try:
                    delta = read_delta(event.data, reply.request_id)
                except AnswerBroken as error:
                    broken = error  # cut inside an event: the error event that tells why may follow
                    continue
                yield delta
    raise broken or AnswerBroken(
        "the stream ended without [DONE]: the answer is cut", request_id=reply.request_id
    )


def _raise_error_event(event: Event, reply: Reply, prompts: tuple[str, ...]) -> None:
    """Raise what an error event tells: `event: error`, or vLLM's plain event with an `error` object."""
    if event.name != "error" and not event.data.startswith(('{"error"', '{"code"', '{ "error"')):
        return
    raw = event.data.encode()
    raise refusal(_error_status(raw), raw, reply.headers, prompts)


class _ErrorCode(msgspec.Struct):
    code: int | str | None = None


class _ErrorEvent(msgspec.Struct):
    error: _ErrorCode


def _error_status(raw: bytes) -> int:
    """The status that vLLM puts into `code`; 502 when the event tells none."""
    try:
        code = msgspec.json.decode(raw, type=_ErrorEvent).error.code
    except (msgspec.DecodeError, UnicodeError):
        return 502
    return code if isinstance(code, int) and 400 <= code <= 599 else 502
