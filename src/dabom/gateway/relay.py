"""One request along its route, and the answer of whoever can give it, untouched.

receive -> read facts -> choose targets -> wait for a permit -> relay -> account
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dabom.errors import DabomError, FirstByteTimeout, UnsupportedMediaType, UpstreamError, UpstreamTimeout
from dabom.gateway import headers as head
from dabom.gateway import sse
from dabom.gateway.admission import claim_of, weigh
from dabom.gateway.answers import Answers
from dabom.gateway.masking import ask_plain
from dabom.gateway.media_options import read_media_options
from dabom.gateway.routing.fallback import status_of_event
from dabom.gateway.splice import splice
from dabom.gateway.upload import JsonUpload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from dabom.gateway.answers import Opened
    from dabom.gateway.asgi import Headers
    from dabom.gateway.exchange import Exchange
    from dabom.gateway.facts import Facts, FactsReader
    from dabom.gateway.fleet import Fleet
    from dabom.gateway.guard import Guard
    from dabom.gateway.plan import Plan, Way
    from dabom.gateway.settings import GatewaySettings
    from dabom.gateway.splice import Edit
    from dabom.gateway.upstream import Upstream
    from dabom.gateway.viewer import Shown, Viewer

_EVENT_STREAM: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as an upstream gets it. `size` is None when there is no body.

    `shown` are its media. `works`: it asks for work, and so needs a permit.
    """

    method: str
    path: str
    body: Sequence[bytes | memoryview]
    size: int | None
    facts: Facts
    shown: Shown | None = None
    works: bool = True

    def changed(self, edits: Sequence[Edit]) -> tuple[Sequence[bytes | memoryview], int | None]:
        """Body and size for a target that needs these changes."""
        if not edits:
            return self.body, self.size
        body = splice(self.body, edits)
        return body, sum(len(piece) for piece in body)


class Relay:
    """Serves requests whose body is JSON."""

    def __init__(self, settings: GatewaySettings, fleet: Fleet, facts: FactsReader, viewer: Viewer) -> None:
        self._settings = settings
        self._viewer = viewer
        self._clocks = settings.clocks
        self._fleet = fleet
        self._facts = facts
        self._answers = Answers(settings.limits)

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
        skeleton = await upload.rest()
        exchange.received(upload.size)
        facts = self._facts.read(skeleton)
        exchange.record.note(facts)
        guard.unlimit()
        guard.watch(exchange.receive)
        plan = await self._fleet.plan(facts)
        exchange.key.allow(*plan.names(facts.model))
        shown = await self._viewer.look(facts, upload.chunks, partial(read_media_options, skeleton))
        outgoing = Outgoing("POST", path, upload.chunks, upload.size, facts, shown)
        if facts.stream and self._settings.early_stream:
            async with self._opened_early(exchange):
                await self.send(exchange, guard, plan, outgoing)
        else:
            await self.send(exchange, guard, plan, outgoing)

    async def send(self, exchange: Exchange, guard: Guard, plan: Plan, outgoing: Outgoing) -> None:
        """Ask the targets of a plan, one after the other, until one of them answers."""
        way = self._fleet.way(plan)
        while True:
            way.note(exchange.record)
            try:
                if await self._ask(exchange, guard, way, outgoing):
                    return
            except DabomError as error:
                if way.settled:
                    raise
                if not way.goes_on_after(error):
                    exchange.notes += way.header(f"failed={error.code}")
                    raise
            except asyncio.CancelledError:
                if (
                    guard.reason is not None and not way.settled
                ):  # the total time is over, or the gateway stops
                    exchange.notes += way.header(f"failed={guard.reason.code}")
                raise
            finally:
                way.note(exchange.record)
            guard.limit_silence_no_more()
            if way.pause_s:
                await asyncio.sleep(way.pause_s)

    async def _ask(self, exchange: Exchange, guard: Guard, way: Way, outgoing: Outgoing) -> bool:
        """Wait for a permit, then ask the target that it is the turn of.

        False when its answer is not passed on, since another target is to be asked.
        """
        target, record = way.target, exchange.record
        facts, edits = way.plan.adapted(target, outgoing)
        way.left_out = len(outgoing.facts.media) - len(facts.media)
        if not outgoing.works:
            return await self._try(exchange, guard, way, outgoing, edits)
        contents = None
        if outgoing.shown is not None:
            edited = await self._viewer.fit(
                outgoing.shown, facts, target, way.plan.route, way.plan.max_pixels
            )
            edits += edited.edits
            facts, contents, way.media = edited.of(facts), edited.facts, edited.header
        cost = weigh(target.meter, facts, outgoing.body, outgoing.path, contents)
        record.predicted_tokens = cost.predicted
        if not way.charged:
            way.charged = True
            exchange.key.charge(cost.tokens)
        permit = target.permits.hold(target.clocks.acquire_timeout_s, claim_of(cost, exchange))
        target.expect(cost.tokens)
        try:
            async with permit:
                if way.passes_over(exchange.now()):
                    return False
                return await self._try(exchange, guard, way, outgoing, edits)
        finally:
            target.expect(-cost.tokens, -1)
            record.queue_ms = round(record.queue_ms + permit.waited_s * 1000, 2)

    async def _try(
        self, exchange: Exchange, guard: Guard, way: Way, outgoing: Outgoing, edits: Sequence[Edit]
    ) -> bool:
        target = way.target
        exchange.key.reached = True
        self._start_clocks(guard, way, outgoing.facts)
        opened = await self._open(exchange, guard, target, outgoing, edits)
        status, body = opened.answer.status, opened.first
        if opened.events is not None and opened.events.failed:
            status, body = status_of_event(opened.first)
        target.judge(status, opened.answer.find(b"retry-after"), exchange.now())
        if status >= 400 and way.goes_on_from(status, body):
            opened.answer.close()
            return False
        way.settled = True
        exchange.notes += way.header(f"status={status}")
        exchange.record.first_byte_ms = guard.elapsed_ms()
        try:
            await self._answers.pass_on(exchange, guard, target, opened)
        except UpstreamError:
            target.health.failed(exchange.now())
            raise
        return True

    async def _open(
        self,
        exchange: Exchange,
        guard: Guard,
        target: Upstream,
        outgoing: Outgoing,
        edits: Sequence[Edit],
    ) -> Opened:
        """Send the request and wait for the first byte of an answer."""
        body, size = outgoing.changed(edits)
        headers = upstream_headers(exchange, target, size, forward=self._settings.forward_authorization)
        target.health.began(exchange.now())
        try:
            answer = await guard.trying(target.send(outgoing.method, outgoing.path, headers, body))
            try:
                return await self._answers.open(exchange, guard, target, answer)
            except BaseException:
                answer.close()
                raise
        except UpstreamError:
            target.health.failed(exchange.now())
            raise
        except BaseException:
            if isinstance(guard.reason, UpstreamTimeout):
                target.health.failed(exchange.now())
            else:
                target.health.left()
            raise

    def _start_clocks(self, guard: Guard, way: Way, facts: Facts) -> None:
        """The total counts from the first permit; each target has its own time for the first byte."""
        clocks = way.target.clocks
        seconds = clocks.first_byte_s(stream=facts.stream, media=bool(facts.media))
        if not way.timed:
            way.timed = True
            guard.limit_total(clocks.total_timeout_s)
        guard.limit_silence(
            seconds, lambda: FirstByteTimeout(f"the upstream sent no first byte in {seconds:g} s")
        )

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
