"""The answer of an upstream: held back until its first byte is there, then passed on untouched."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from dabom.errors import IdleTimeout, UpstreamBroken
from dabom.gateway import headers as head
from dabom.gateway import sse

if TYPE_CHECKING:
    from dabom.gateway.asgi import Headers
    from dabom.gateway.exchange import Exchange
    from dabom.gateway.guard import Guard
    from dabom.gateway.settings import Limits
    from dabom.gateway.upstream import Upstream
    from dabom.gateway.wire import Answer

_BODILESS = (204, 304)
"""Of a 304 the length is that of an answer that is not sent."""


@dataclass(slots=True)
class Opened:
    """An answer of which nothing has been passed on.

    `first` is the first piece of its body, or all of it when `whole`; of a stream it is whole events.
    """

    answer: Answer
    headers: Headers
    first: bytes = b""
    whole: bool = False
    events: sse.Events | None = None


class Answers:
    """Opens answers and passes them on."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    async def open(self, exchange: Exchange, guard: Guard, target: Upstream, answer: Answer) -> Opened:
        """Wait for the first byte of the body; of an error for all of it. Raises `UpstreamError`.

        A client that waits for a stream is kept alive with comments: its head is sent then, whoever answers
        in the end.
        """
        headers = head.for_client(answer.headers, exchange.record.request_id)
        if not 200 <= answer.status <= 599:
            raise UpstreamBroken(f"upstream {target.name} answers with status {answer.status}")
        if answer.status >= 400 and exchange.record.method != "HEAD":
            limit_idle(guard, target)
            body = await guard.trying(answer.read_all(self._limits.max_error_bytes, guard.touch))
            return Opened(answer, headers, body, whole=True)
        if sse.readable(headers):
            events = sse.Events()
            first = await self._first_events(exchange, guard, target, Opened(answer, headers, events=events))
            return Opened(answer, headers, first, answer.ended, events)
        limit_idle(guard, target)
        first = await guard.trying(answer.read())
        return Opened(answer, headers, first, answer.ended)

    async def _first_events(
        self, exchange: Exchange, guard: Guard, target: Upstream, opened: Opened
    ) -> bytes:
        events, answer, early = opened.events or sse.Events(), opened.answer, exchange.started
        guard.limit_pause(target.clocks.keepalive_comment_s)
        while (chunk := await guard.trying(guard.or_pause(answer.read()))) != b"":
            if chunk is None:
                if not early:  # else somebody else sends comments
                    await self._begin(exchange, opened)
                    await exchange.write(sse.COMMENT)
                continue
            ready = events.whole(chunk)
            if b"data:" in ready:
                return ready
            if ready:
                await self._begin(exchange, opened)
                await exchange.write(ready)
        rest = events.rest()
        _check_end(target, answer, events)
        return rest

    async def _begin(self, exchange: Exchange, opened: Opened) -> None:
        if not exchange.started:
            await exchange.start(opened.answer.status, opened.headers)

    async def pass_on(self, exchange: Exchange, guard: Guard, target: Upstream, opened: Opened) -> None:
        """Relay an answer, and close it."""
        answer = opened.answer
        try:
            limit_idle(guard, target)
            if opened.events is not None:
                exchange.hush()
                await self._begin(exchange, opened)
                await self._pass_events(exchange, guard, target, opened)
            elif exchange.started:
                exchange.hush()
                await self._refuse_early(exchange, guard, target, opened)
            elif answer.status >= 400 and opened.whole and exchange.record.method != "HEAD":
                answer.close()
                await exchange.whole(answer.status, opened.headers, opened.first)
            else:
                await self._pass_bytes(exchange, guard, opened)
        finally:
            answer.close()  # gives a connection back whose answer is whole, and drops any other

    async def _pass_bytes(self, exchange: Exchange, guard: Guard, opened: Opened) -> None:
        answer, headers = opened.answer, opened.headers
        length = answer.find(b"content-length")
        if length is not None and answer.status not in _BODILESS:
            headers.append((b"content-length", length))
        await exchange.start(answer.status, headers)
        if opened.whole:
            await exchange.end(opened.first)
            return
        if opened.first:
            await exchange.write(opened.first)
            guard.touch()
        while chunk := await answer.read():
            guard.touch()
            if answer.ended:
                await exchange.end(chunk)
                return
            await exchange.write(chunk)
            guard.touch()
        await exchange.end()

    async def _pass_events(self, exchange: Exchange, guard: Guard, target: Upstream, opened: Opened) -> None:
        answer, events = opened.answer, opened.events or sse.Events()
        exchange.between = events.between
        if opened.first:
            await exchange.write(opened.first)
            guard.touch()
        guard.limit_pause(target.clocks.keepalive_comment_s)
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
        _check_end(target, answer, events)
        if rest:
            await exchange.write(rest)
        if events.failed:
            exchange.record.code = UpstreamBroken.code
        else:
            await exchange.end()

    async def _refuse_early(self, exchange: Exchange, guard: Guard, target: Upstream, opened: Opened) -> None:
        """Tell of an answer that is no stream in a stream that has been opened early."""
        body = opened.first
        if not opened.whole:
            body += await opened.answer.read_all(self._limits.max_error_bytes, guard.touch)
        exchange.record.code = UpstreamBroken.code
        await exchange.write(_refusal_event(target, opened.answer.status, body))


def limit_idle(guard: Guard, target: Upstream) -> None:
    """From here on an upstream is in the middle of its answer."""
    idle_s = target.clocks.idle_timeout_s
    guard.limit_silence(
        idle_s,
        lambda: IdleTimeout(f"upstream {target.name} was silent for {idle_s:g} s within its answer"),
    )


def _check_end(target: Upstream, answer: Answer, events: sse.Events) -> None:
    if not (answer.framed or events.done or events.failed):
        raise UpstreamBroken(f"upstream {target.name} closed its stream without saying that it is done")


def _refusal_event(target: Upstream, status: int, body: bytes) -> bytes:
    """An upstream's error as an event: its own JSON on one line, or ours where a client would find none."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        refusal = msgspec.json.decode(body)
        if isinstance(refusal, dict) and refusal.get("error"):
            return sse.data_event(body.replace(b"\r", b" ").replace(b"\n", b" "))
    return sse.error_event(UpstreamBroken(f"upstream {target.name} answers {status} and no stream"))
