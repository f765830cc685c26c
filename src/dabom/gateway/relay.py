"""One request to one upstream, and its answer back, untouched.

receive -> read facts -> choose a target -> wait for a permit -> relay -> account
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from dabom.errors import FirstByteTimeout, IdleTimeout, UnsupportedMediaType, UpstreamBroken
from dabom.gateway import headers as head
from dabom.gateway import sse
from dabom.gateway.admission import claim_of, weigh
from dabom.gateway.masking import ask_plain
from dabom.gateway.upload import JsonUpload, Stalled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from dabom.gateway.asgi import Headers
    from dabom.gateway.exchange import Exchange
    from dabom.gateway.facts import Facts, FactsReader
    from dabom.gateway.fleet import Fleet
    from dabom.gateway.guard import Guard
    from dabom.gateway.scan import Skeleton
    from dabom.gateway.settings import GatewaySettings
    from dabom.gateway.upstream import Upstream
    from dabom.gateway.wire import Answer

_BODILESS = (204, 304)
"""Of a 304 the length is that of an answer that is not sent."""
_EVENT_STREAM: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as an upstream gets it. `size` is None when there is no body."""

    method: str
    path: str
    body: Sequence[bytes]
    size: int | None
    facts: Facts


class Relay:
    """Serves requests whose body is JSON."""

    def __init__(self, settings: GatewaySettings, fleet: Fleet, facts: FactsReader) -> None:
        self._settings = settings
        self._clocks = settings.clocks
        self._fleet = fleet
        self._facts = facts

    async def serve(self, exchange: Exchange, guard: Guard, path: str) -> None:
        """Relay a POST to `path`, which begins behind `/v1`."""
        check_content(exchange)
        upload = JsonUpload(
            exchange.receive,
            head.content_length(exchange.headers),
            self._settings.limits.max_body_bytes,
            guard,
        )
        exchange.uploading = True
        upload.admit()
        upload.limit_silence(guard, self._clocks.upload_idle_timeout_s)
        while not upload.ended:
            await upload.next()
            target = self._fleet.only
            if (
                target is not None
                and target.permits.free
                and upload.flows
                and not self._settings.early_stream
            ):
                if await self._flow(exchange, guard, upload, target, path):
                    return
                guard.unlimit()
                upload.limit_silence(guard, self._clocks.upload_idle_timeout_s)
                break
        skeleton = await upload.rest()
        exchange.received(upload.size)
        facts = self._facts.read(skeleton)
        exchange.record.note(facts)
        guard.unlimit()
        guard.watch(exchange.receive)
        target = await self._fleet.choose(facts.model)
        exchange.record.upstream = target.name
        outgoing = Outgoing("POST", path, upload.chunks, upload.size, facts)
        if facts.stream and self._settings.early_stream:
            async with self._opened_early(exchange):
                await self.queue(exchange, guard, target, outgoing)
        else:
            await self.queue(exchange, guard, target, outgoing)

    async def queue(self, exchange: Exchange, guard: Guard, target: Upstream, outgoing: Outgoing) -> None:
        """Wait for a permit, then ask."""
        cost = weigh(target.meter, outgoing.facts, outgoing.body, outgoing.path)
        exchange.record.predicted_tokens = cost.predicted
        exchange.key.charge(cost.tokens)
        permit = target.permits.hold(self._clocks.acquire_timeout_s, claim_of(cost, exchange))
        try:
            async with permit:
                await self.ask(exchange, guard, target, outgoing)
        finally:
            exchange.record.queue_ms = round(permit.waited_s * 1000, 2)

    async def ask(self, exchange: Exchange, guard: Guard, target: Upstream, outgoing: Outgoing) -> None:
        """Send a request that has been received, and relay its answer. The caller holds the permit."""
        self._start_clocks(guard, stream=outgoing.facts.stream, media=bool(outgoing.facts.media))
        headers = self._upstream_headers(exchange, target, outgoing.size)
        answer = await target.send(outgoing.method, outgoing.path, headers, outgoing.body)
        await self._answer(exchange, guard, target, answer)

    async def _flow(
        self, exchange: Exchange, guard: Guard, upload: JsonUpload, target: Upstream, path: str
    ) -> bool:
        """Send the body on while it arrives. False when the upload stalled; nothing is answered then."""

        def checked(skeleton: Skeleton) -> None:
            facts = self._facts.read(skeleton)
            exchange.record.note(facts)
            exchange.uploading = False
            self._start_clocks(guard, stream=facts.stream, media=bool(facts.media))
            guard.watch(exchange.receive)

        exchange.record.upstream = target.name
        self._start_clocks(guard, stream=True, media=True)  # until the facts are known
        async with target.permits.hold(self._clocks.acquire_timeout_s):
            headers = self._upstream_headers(exchange, target, upload.length)
            answer = await target.open("POST", path, headers)
            try:
                answer.sent = await upload.flow(answer.put, checked)
                await answer.head()
            except Stalled:
                answer.close()
                return False
            except BaseException:
                answer.close()
                raise
            await self._answer(exchange, guard, target, answer)
        return True

    async def _answer(self, exchange: Exchange, guard: Guard, target: Upstream, answer: Answer) -> None:
        """Relay an answer and close it."""
        guard.limit_silence(
            self._clocks.idle_timeout_s,
            lambda: IdleTimeout(
                f"upstream {target.name} was silent for {self._clocks.idle_timeout_s:g} s within its answer"
            ),
        )
        exchange.record.first_byte_ms = guard.elapsed_ms()
        headers = head.for_client(answer.headers, exchange.record.request_id)
        try:
            if not 200 <= answer.status <= 599:
                raise UpstreamBroken(f"upstream {target.name} answers with status {answer.status}")
            if exchange.started:
                await self._continue_early(exchange, guard, target, answer)
            elif answer.status >= 400 and exchange.record.method != "HEAD":
                body = await answer.read_all(self._settings.limits.max_error_bytes, guard.touch)
                answer.close()
                await exchange.whole(answer.status, headers, body)
            elif sse.readable(headers):
                await exchange.start(answer.status, headers)
                await self._relay_events(exchange, guard, target, answer)
            else:
                await self._relay_bytes(exchange, guard, target, answer, headers)
        finally:
            answer.close()  # gives a connection back whose answer is whole, and drops any other

    async def _relay_bytes(
        self,
        exchange: Exchange,
        guard: Guard,
        target: Upstream,
        answer: Answer,
        headers: Headers,
    ) -> None:
        length = answer.find(b"content-length")
        if length is not None and answer.status not in _BODILESS:
            headers.append((b"content-length", length))
        await exchange.start(answer.status, headers)
        while chunk := await answer.read():
            guard.touch()
            if answer.ended:
                await exchange.end(chunk)
                return
            await exchange.write(chunk)
            guard.touch()
        await exchange.end()

    async def _relay_events(self, exchange: Exchange, guard: Guard, target: Upstream, answer: Answer) -> None:
        events = sse.Events()
        guard.limit_pause(self._clocks.keepalive_comment_s)
        while (chunk := await guard.or_pause(answer.read())) != b"":
            if chunk is None:
                if events.between:
                    await exchange.write(sse.COMMENT)
                continue
            guard.touch()
            ready = events.whole(chunk)
            exchange.between = events.between
            if ready:
                await exchange.write(ready)
                guard.touch()
        rest = events.rest()
        if not (answer.framed or events.done or events.failed):
            raise UpstreamBroken(f"upstream {target.name} closed its stream without saying that it is done")
        if rest:
            await exchange.write(rest)
        if events.failed:
            exchange.record.code = UpstreamBroken.code
        else:
            await exchange.end()

    def _start_clocks(self, guard: Guard, *, stream: bool, media: bool) -> None:
        seconds = self._clocks.first_byte_s(stream=stream, media=media)
        guard.limit_total(self._clocks.total_timeout_s)
        guard.limit_silence(
            seconds, lambda: FirstByteTimeout(f"the upstream sent no first byte in {seconds:g} s")
        )

    def _upstream_headers(self, exchange: Exchange, target: Upstream, length: int | None) -> Headers:
        return upstream_headers(exchange, target, length, forward=self._settings.forward_authorization)

    @asynccontextmanager
    async def _opened_early(self, exchange: Exchange) -> AsyncIterator[None]:
        """Open a stream at once and keep it alive with comments while it waits."""
        await exchange.start(200, [*_EVENT_STREAM, (b"x-request-id", exchange.record.request_id.encode())])
        speaking = asyncio.create_task(self._speak(exchange))
        exchange.hush = speaking.cancel
        try:
            yield
        finally:
            speaking.cancel()

    async def _speak(self, exchange: Exchange) -> None:
        while True:
            await exchange.write(sse.COMMENT)
            await asyncio.sleep(self._clocks.keepalive_comment_s)

    async def _continue_early(
        self, exchange: Exchange, guard: Guard, target: Upstream, answer: Answer
    ) -> None:
        exchange.hush()
        if answer.status < 400 and sse.readable(head.for_client(answer.headers, "")):
            await self._relay_events(exchange, guard, target, answer)
            return
        body = await answer.read_all(self._settings.limits.max_error_bytes, guard.touch)
        exchange.record.code = UpstreamBroken.code
        await exchange.write(_refusal_event(target, answer.status, body))


def _refusal_event(target: Upstream, status: int, body: bytes) -> bytes:
    """An upstream's error as an event: its own JSON on one line, or ours where a client would find none."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        refusal = msgspec.json.decode(body)
        if isinstance(refusal, dict) and refusal.get("error"):
            return sse.data_event(body.replace(b"\r", b" ").replace(b"\n", b" "))
    return sse.error_event(UpstreamBroken(f"upstream {target.name} answers {status} and no stream"))


def upstream_headers(exchange: Exchange, target: Upstream, length: int | None, *, forward: bool) -> Headers:
    """The headers of a request to `target`."""
    authorization = target.authorization
    if authorization is None and forward:
        authorization = head.find(exchange.headers, b"authorization")
    headers = head.for_upstream(exchange.headers, exchange.record.request_id, authorization)
    if exchange.masking is not None:
        headers = ask_plain(headers)
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    return headers


def check_content(exchange: Exchange, *also: bytes) -> None:
    """Refuse what is not JSON, or `also` another media type, or is compressed."""
    kind = head.find(exchange.headers, b"content-type")
    if not head.is_json(kind) and head.media_type(kind) not in also:
        allowed = " or ".join(["application/json", *(a.decode() for a in also)])
        found = head.media_type(kind).decode("ascii", "replace")[:80]
        raise UnsupportedMediaType(f"Content-Type is {found}; send {allowed}")
    encoding = head.find(exchange.headers, b"content-encoding")
    if encoding is not None and encoding.strip().lower() != b"identity":
        raise UnsupportedMediaType("the body is compressed; send it without Content-Encoding")
