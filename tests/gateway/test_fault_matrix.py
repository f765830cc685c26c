"""Every fault of an upstream, of a stream or not, at the first or at the last target of a route."""

from __future__ import annotations

import asyncio
import base64
import io
import random
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from PIL import Image

from dabom.testing import (
    Close,
    Reset,
    ScriptedUpstream,
    Send,
    Stall,
    chat_answer,
    chat_events,
    chunk,
    cut_at,
    drip,
    error_reply,
    head,
    json_reply,
    raw_reply,
    refusing_upstream,
    sent_bytes,
    sse_event,
    sse_reply,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.gateway.conftest import Answer, Run, RunningGateway

    from dabom.testing import Seen, Step

JSON, SSE = ("content-type", "application/json"), ("content-type", "text/event-stream")
CHUNKED = ("transfer-encoding", "chunked")
QUICK = {"first_byte_timeout_s": 0.3, "idle_timeout_s": 0.3, "retries": 0}
ERROR = {
    "error": {"message": "the engine is gone", "type": "InternalServerError", "param": None, "code": 500}
}
REFUSED = {"error": {"message": "that is too much", "type": "BadRequestError", "param": None, "code": 400}}


def good(name: str, *, stream: bool) -> list[Step]:
    return sse_reply(chat_events(name, "!")) if stream else json_reply(chat_answer(f"{name}!"))


def kind(*, stream: bool) -> tuple[str, str]:
    return SSE if stream else JSON


@dataclass(frozen=True)
class Fault:
    """What an upstream does, and what comes of it.

    `code` is that of the hop, `code_whole` when it is another for an answer that is no stream. `passes`: it
    is no fault that anyone else could help with, since the first byte of the answer has been passed on, or
    since the answer is whole.
    """

    code: str = ""
    status: int = 502
    passes: bool = False
    whole: bool = True
    code_whole: str = ""

    def code_of(self, *, stream: bool) -> str:
        return self.code if stream else self.code_whole or self.code

    def steps(self, name: str, *, stream: bool) -> list[Step] | None:
        return None


class Refuse(Fault):
    """No script: nobody listens."""


class ResetBeforeHeaders(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        return [Reset()]


class ResetMidHeaders(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        return cut_at(good(name, stream=stream), 30)


class SilenceBeforeHeaders(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        return [Stall()]


class HeadersThenSilence(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        return [Send(head(200, [kind(stream=stream), CHUNKED])), Stall()]


class HeadersThenReset(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        return [Send(head(200, [kind(stream=stream), CHUNKED])), Reset()]


class CutMidStream(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        if stream:
            return [*good(name, stream=True)[:2], Close()]
        whole = good(name, stream=False)
        return cut_at(whole, len(sent_bytes(whole)) - 30, Close())


class GarbageChunkFirst(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        return [Send(head(200, [kind(stream=stream), CHUNKED]) + b"zz\r\nnothing\r\n"), Stall()]


class GarbageChunkLater(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        event = sse_event(chat_events(name)[0]) if stream else b'{"choices":['
        return [Send(head(200, [kind(stream=stream), CHUNKED]) + chunk(event)), Send(b"zz\r\n"), Stall()]


class ErrorEventFirst(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        return sse_reply([ERROR])


class ErrorEventLater(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        return sse_reply([chat_events(name, "!")[0], ERROR], gap_s=0.1)


class ErrorEventOfTheClient(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        return sse_reply([REFUSED])


class TooManyRequests(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        return error_reply(429, "slow down", headers=[("retry-after", "7")])


class Overloaded(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        return error_reply(503, "busy")


class Broken(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        return error_reply(self.status, "broken")


class SlowDrip(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        return drip(good(name, stream=stream), 40, 0.02)


class LengthTooLong(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        body = sse_event(chat_events(name)[0]) if stream else msgspec.json.encode(chat_answer(f"{name}!"))
        size = ("content-length", str(len(body) + 50))
        return [Send(head(200, [kind(stream=stream), size]) + body), Close()]


class LengthTooShort(Fault):
    def steps(self, name: str, *, stream: bool) -> list[Step]:
        reply = raw_reply(b"" if stream else b"{}", headers=[kind(stream=stream)])
        return [Send(sent_bytes(reply) + b" and more than that"), Stall()]


FAULTS = {
    "refuse": Refuse("upstream_unreachable"),
    "reset before headers": ResetBeforeHeaders("upstream_broken"),
    "reset mid-headers": ResetMidHeaders("upstream_broken"),
    "silence": SilenceBeforeHeaders("first_byte_timeout", 504),
    "headers then silence": HeadersThenSilence("first_byte_timeout", 504, code_whole="idle_timeout"),
    "headers then reset": HeadersThenReset("upstream_broken"),
    "cut mid-stream": CutMidStream("upstream_broken", 200, passes=True, whole=False),
    "garbage chunk first": GarbageChunkFirst("upstream_broken"),
    "garbage chunk later": GarbageChunkLater("upstream_broken", 200, passes=True, whole=False),
    "200 with an error event": ErrorEventFirst("http_500", 200),
    "an error event later": ErrorEventLater("upstream_broken", 200, passes=True, whole=False),
    "an error event of the client's": ErrorEventOfTheClient("upstream_broken", 200, passes=True, whole=False),
    "429 with Retry-After": TooManyRequests("http_429", 429),
    "503": Overloaded("http_503", 503),
    "500": Broken("http_500", 500),
    "502": Broken("http_502", 502),
    "504": Broken("http_504", 504),
    "slow drip": SlowDrip(status=200, passes=True),
    "content length too long": LengthTooLong("upstream_broken", 200, passes=True, whole=False),
    "content length too short": LengthTooShort(status=200, passes=True),
}


@asynccontextmanager
async def upstream(steps: Sequence[Step] | None) -> AsyncIterator[tuple[str, ScriptedUpstream | None]]:
    """An upstream that plays this, or whose port refuses."""
    if steps is None:
        with refusing_upstream() as url:
            yield url, None
    else:
        async with ScriptedUpstream(steps, models=["m"]) as scripted:
            yield scripted.url, scripted


@pytest.fixture
def route(running_gateway: Run) -> Any:
    """A gateway with the model `m`: first the upstream `one`, then `two`."""

    @asynccontextmanager
    async def start(
        first: Sequence[Step] | None, second: Sequence[Step] | None
    ) -> AsyncIterator[tuple[ScriptedUpstream | None, ScriptedUpstream | None, RunningGateway]]:
        async with AsyncExitStack() as stack:
            (url_one, one), (url_two, two) = [
                await stack.enter_async_context(upstream(steps)) for steps in (first, second)
            ]
            upstreams = [{"url": url_one, "name": "one"}, {"url": url_two, "name": "two"}]
            routes = {"r": {"steps": [["one"], ["two"]]}}
            gw = await stack.enter_async_context(
                running_gateway(upstreams=upstreams, routes=routes, models={"m": "r"}, **QUICK)
            )
            yield one, two, gw
            assert [(up.requests, up.tokens) for up in gw.gateway.fleet.upstreams] == [(0, 0)] * 2

    return start


def body(*, stream: bool) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": stream}


def said(answer: Answer) -> str:
    """All text of an answer, streamed or not."""
    if (answer.header("content-type") or "").startswith("application/json"):
        return str(answer.json()["choices"][0]["message"]["content"])
    events = [line[6:] for line in answer.body.splitlines() if line.startswith(b"data: {")]
    return "".join(msgspec.json.decode(event)["choices"][0]["delta"]["content"] for event in events)


def fallbacks(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("dabom_fallbacks_total{")]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_of_the_first_target(route: Any, name: str, stream: bool) -> None:
    fault = FAULTS[name]
    async with route(fault.steps("one", stream=stream), good("two", stream=stream)) as (one, two, gw):
        answer = await gw.ask("/chat", body(stream=stream), headers=[("x-request-id", "r1")])
        line = await gw.line("r1")
        page = (await gw.ask("/metrics")).body.decode()
        if fault.passes:
            assert answer.header(
                "x-dabom-route",
            ).startswith("m;reason=model, one;status=")
            assert not two.seen
            assert (answer.whole, line.get("code", "")) == (fault.whole, fault.code)
            assert ("hops" in line, fallbacks(page)) == (False, [])
            return
        code = fault.code_of(stream=stream)
        hop = f"one;failed={code}"
        assert (answer.status, answer.whole, said(answer)) == (200, True, "two!")
        assert answer.header("x-dabom-route") == f"m;reason=model, {hop}, two;status=200"
        assert (line["upstream"], line["route"], line["hops"]) == ("two", "m", [hop])
        assert two.seen[0].json() == body(stream=stream)
        assert fallbacks(page) == [f'dabom_fallbacks_total{{code="{code}",route="m",upstream="one"}} 1.0']
        assert one is None or len(one.seen) == 1  # it may have begun to work: it is not asked twice


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_of_the_last_target(route: Any, name: str, stream: bool) -> None:
    fault = FAULTS[name]
    async with route(None, fault.steps("two", stream=stream)) as (_, two, gw):
        answer = await gw.ask("/chat", body(stream=stream), headers=[("x-request-id", "r1")])
        line = await gw.line("r1")
        assert (line["upstream"], line["hops"]) == ("two", ["one;failed=upstream_unreachable"])
        assert answer.status == fault.status
        before = "m;reason=model, one;failed=upstream_unreachable, two;"
        assert (answer.header("x-dabom-route") or "").startswith(before)
        if fault.passes:
            assert (answer.whole, line.get("code", "")) == (fault.whole, fault.code)
        elif answer.status == 200:  # the error is in the stream, which does not end as a whole one
            assert (answer.whole, line["code"]) == (False, "upstream_broken")
            assert b"the engine is gone" in answer.body
            assert b"[DONE]" not in answer.body
        else:
            assert answer.whole
            assert answer.error["message"]
        if name == "429 with Retry-After":
            assert answer.header("retry-after") == "7"
        if name == "slow drip":
            assert said(answer) == "two!"
        assert two is None or len(two.seen) == 1


def _any_fault(seen: Seen, chance: random.Random) -> Sequence[Step]:
    """The bytes of any fault, or a good answer, in the form that was asked for."""
    stream = b'"stream":true' in seen.body
    found = chance.choice([None, *FAULTS.values()])
    steps = None if found is None else found.steps("x", stream=stream)
    return good("x", stream=stream) if steps is None else steps


async def _ask_somehow(gw: RunningGateway, chance: random.Random, picture: str) -> None:
    """A chat, a stream or a batch, with a picture or without; the client waits for the end or leaves."""
    asked = body(stream=chance.random() < 0.5)
    if chance.random() < 0.1:
        shown = {"type": "image_url", "image_url": {"url": picture, "detail": "low"}}
        asked["messages"] = [{"role": "user", "content": [shown]}]
    path, octets = "/chat", msgspec.json.encode(asked)
    headers = [("content-type", "application/json")]
    if chance.random() < 0.3:
        path, items = "/chat/batch", [{"id": n, "body": {**asked, "stream": False}} for n in range(4)]
        octets = msgspec.json.encode({"items": items})
        if chance.random() < 0.5:
            octets = b"\n".join(map(msgspec.json.encode, items))
            headers = [("content-type", "application/x-ndjson")]
    stays, seconds, hard = chance.random() < 0.5, chance.choice((0.0, 0.01, 0.1, 0.3)), chance.random() < 0.5
    async with gw.wire() as wire:
        try:
            async with asyncio.timeout(30 if stays else seconds):
                await wire.request(path, octets, headers=headers)
                await wire.rest(30)
        except TimeoutError:
            assert not stays, "no end of an answer"
        (wire.reset if hard else wire.leave)()


async def test_after_five_hundred_random_faults_every_count_is_what_it_was(running_gateway: Run) -> None:
    chance = random.Random(20_262)
    art = io.BytesIO()
    Image.effect_noise((640, 480), 60).save(art, "PNG")
    picture = "data:image/png;base64," + base64.b64encode(art.getvalue()).decode()
    async with AsyncExitStack() as stack:
        ups = [
            await stack.enter_async_context(
                ScriptedUpstream(partial(_any_fault, chance=chance), models=["m"])
            )
            for _ in range(3)
        ]
        one, two, three = [
            {"url": up.url, "name": name, "token_budget": 20_000, "concurrency": 4}
            for name, up in zip(("one", "two", "three"), ups, strict=True)
        ]
        settings: dict[str, Any] = {
            "upstreams": [one, two, three],
            "routes": {"r": {"steps": [["one", "two"], ["three"]]}},
            "models": {"m": "r"},
            "health": {"breaker_open_s": 0.05},
            "first_byte_timeout_s": 0.1,
            "idle_timeout_s": 0.1,
            "retries": 1,
        }
        gw = await stack.enter_async_context(running_gateway(**settings))
        await _ask_somehow(gw, chance, picture)
        await gw.until(lambda: gw.gateway.running == 0)
        tasks = len(asyncio.all_tasks())
        room = asyncio.Semaphore(64)

        async def one_more() -> None:
            async with room:
                await _ask_somehow(gw, chance, picture)

        await asyncio.gather(*(one_more() for _ in range(500)))
        await gw.until(lambda: gw.gateway.running == 0)
        for up in gw.gateway.fleet.upstreams:
            assert (up.requests, up.tokens, up.permits.held, up.permits.waiting) == (0, 0, 0, 0)
            assert (up.permits.tokens, up.health.breaker.trying) == (0, False)
        assert (gw.gateway.bodies.held, gw.gateway.bodies.tokens) == (0, 0)
        for scripted in ups:
            await scripted.wait_closed(within_s=15)
        await gw.until(lambda: len(asyncio.all_tasks()) <= tasks)
