"""Along a route: who is asked next and who is not, with what, and what the client sees of it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from dabom.gateway import plan
from dabom.testing import (
    Close,
    Reset,
    ScriptedUpstream,
    Send,
    Stall,
    Wait,
    chat_answer,
    chat_events,
    cut_at,
    error_reply,
    free_port,
    head,
    in_turn,
    json_reply,
    recording,
    refusing_upstream,
    sent_bytes,
    sse_reply,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.gateway.conftest import Answer, Run, RunningGateway

    from dabom.testing.upstream import Script

SSE = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def says(text: str) -> list[Any]:
    return json_reply(chat_answer(text))


def text_of(answer: Answer) -> str:
    assert answer.status == 200, answer
    return str(answer.json()["choices"][0]["message"]["content"])


@pytest.fixture
def route(running_gateway: Run) -> Any:
    """`async with route({"one": script, "two": script}) as (upstreams, gw)`: a route `r`, one step each.

    `more` are further settings of the upstreams by name, `serves` the names that they list.
    """

    @asynccontextmanager
    async def start(
        scripts: dict[str, Script],
        *,
        more: dict[str, dict[str, Any]] | None = None,
        serves: dict[str, list[str]] | None = None,
        **settings: Any,
    ) -> AsyncIterator[tuple[dict[str, ScriptedUpstream], RunningGateway]]:
        async with AsyncExitStack() as stack:
            ups = {
                name: await stack.enter_async_context(
                    ScriptedUpstream(script, models=(serves or {}).get(name, ["m"]))
                )
                for name, script in scripts.items()
            }
            upstreams = [
                {"url": up.url, "name": name, **(more or {}).get(name, {})} for name, up in ups.items()
            ]
            given = {"routes": {"r": {"steps": [[name] for name in ups]}}, "models": {"m": "r"}} | settings
            gw = await stack.enter_async_context(running_gateway(upstreams=upstreams, **given))
            yield ups, gw
            assert [(up.requests, up.tokens) for up in gw.gateway.fleet.upstreams] == [(0, 0)] * len(ups)

    return start


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 431])
async def test_a_refusal_for_the_sake_of_the_request_is_passed_on(route: Any, status: int) -> None:
    async with route({"one": error_reply(status, "not like this"), "two": says("two")}) as (ups, gw):
        for _ in range(7):  # it says nothing against the upstream either
            answer = await gw.ask("/chat", ASK)
            assert (answer.status, answer.error["message"]) == (status, "not like this")
            assert answer.header("x-dabom-route") == f"m;reason=model, one;status={status}"
        assert (len(ups["one"].seen), len(ups["two"].seen)) == (7, 0)


@pytest.mark.parametrize("refusal", ["vllm_error_too_long", "llama_cpp_error_too_long"])
@pytest.mark.parametrize("path", ["/chat", "/chat/batch"])
async def test_a_prompt_that_is_too_long_goes_to_a_model_with_more_room(
    route: Any, refusal: str, path: str
) -> None:
    """Those with no more room, or of whom nobody knows, would refuse it, too."""
    scripts = {
        "one": recording(refusal),
        "same": says("same"),
        "unknown": says("unknown"),
        "wide": says("wide"),
    }
    more = {"one": {"max_model_len": 4096}, "same": {"max_model_len": 2048}, "wide": {"max_model_len": 32768}}
    async with route(scripts, more=more) as (ups, gw):
        if path == "/chat":
            answer = await gw.ask(path, ASK)
            assert text_of(answer) == "wide"
            assert answer.header("x-dabom-route") == "m;reason=model, one;failed=http_400, wide;status=200"
        else:
            answer = await gw.ask(path, {"items": [{"id": 1, "body": ASK}]})
            assert answer.json()["body"]["choices"][0]["message"]["content"] == "wide"
        assert [len(ups[name].seen) for name in scripts] == [1, 0, 0, 1]


@pytest.mark.parametrize("refusal", ["vllm_error_too_long", "llama_cpp_error_too_long"])
async def test_a_prompt_that_is_too_long_for_all_is_refused_in_the_upstreams_words(
    route: Any, refusal: str
) -> None:
    async with route({"one": recording(refusal), "two": says("two")}) as (ups, gw):
        answer = await gw.ask("/chat", ASK)
        assert answer.status == 400
        assert "context" in answer.error["message"]
        assert not ups["two"].seen


async def test_a_prompt_that_the_gateway_knows_to_be_too_long_goes_on(route: Any) -> None:
    long = {**ASK, "max_tokens": 9000}
    more = {"one": {"max_model_len": 4096}, "two": {"max_model_len": 32768}}
    async with route({"one": says("one"), "two": says("two")}, more=more) as (ups, gw):
        answer = await gw.ask("/chat", long)
        assert text_of(answer) == "two"
        assert "one;failed=prompt_too_long" in (answer.header("x-dabom-route") or "")
        refused = await gw.ask("/chat", {**ASK, "max_tokens": 90_000})
        assert (refused.status, refused.error["code"]) == (400, "prompt_too_long")
        assert not ups["one"].seen


async def test_a_body_of_twenty_megabytes_is_sent_again_whole(route: Any) -> None:
    clip = base64.b64encode(random.Random(3).randbytes(15_000_000)).decode()
    part = {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{clip}"}}
    body = msgspec.json.encode({**ASK, "messages": [{"role": "user", "content": [part]}]})
    assert len(body) > 20_000_000
    async with route({"one": error_reply(503), "two": [Reset()], "three": says("three")}) as (ups, gw):
        assert text_of(await gw.ask("/chat", body)) == "three"
        wanted = hashlib.sha256(body).hexdigest()
        assert [seen.sha256 for up in ups.values() for seen in up.seen] == [wanted] * 3


async def test_only_the_models_name_is_changed(route: Any) -> None:
    body = b'{ "n":1e0,"m\\u006fdel" :"m", "messages":[ {"role":"user","content":"m \\u006d"} ],"model":"m" }'
    serves = {"one": ["Qwen/Qwen3-VL-30B"], "two": ["m", "other"], "three": ["a", "b"]}
    scripts = {"one": error_reply(503), "two": error_reply(503), "three": says("three")}
    async with route(scripts, serves=serves, more={"three": {"model": '한"글'}}) as (ups, gw):
        await gw.until(lambda: all(up.models for up in gw.gateway.fleet.upstreams))
        assert text_of(await gw.ask("/chat", body)) == "three"
        sent = [up.seen[0].body for up in ups.values()]
        start = body.rindex(b'"m"')
        renamed = body[:start] + b'"Qwen/Qwen3-VL-30B"' + body[start + 3 :]
        assert sent == [renamed, body, body[:start] + '"한\\"글"'.encode() + body[start + 3 :]]


async def test_the_items_of_a_batch_go_on_too(route: Any) -> None:
    items = [{"id": n, "body": {**ASK, "user": str(n)}} for n in range(12)]
    half = cut_at(says("half"), len(sent_bytes(says("half"))) - 20, Close())
    faults: list[Script] = [error_reply(500), half, [Reset()], [Close()], says("one")]
    turns, health = in_turn(*faults * 3), {"breaker_failures": 50}
    async with route({"one": turns, "two": says("two")}, concurrency=3, health=health) as (ups, gw):
        answer = await gw.ask("/chat/batch", {"items": items})
        lines = {line["id"]: line for line in map(msgspec.json.decode, answer.body.splitlines())}
        assert set(lines) == set(range(12))
        assert {line["status"] for line in lines.values()} == {200}
        said = [line["body"]["choices"][0]["message"]["content"] for line in lines.values()]
        assert set(said) == {"one", "two"}
        assert {seen.json()["user"] for up in ups.values() for seen in up.seen} == {str(n) for n in range(12)}
        assert len(ups["two"].seen) == said.count("two")


async def test_an_item_that_fails_everywhere_has_a_line_that_says_so(route: Any) -> None:
    async with route({"one": error_reply(503, "one is busy"), "two": error_reply(500, "two broke")}) as (
        _,
        gw,
    ):
        answer = await gw.ask("/chat/batch", {"items": [{"id": "a", "body": ASK}]})
        line = answer.json()
        assert (line["status"], line["error"]["error"]["message"]) == (500, "two broke")


async def test_a_client_is_kept_alive_while_others_are_asked(route: Any) -> None:
    silent = [Send(head(200, SSE)), Stall()]
    late = [Wait(0.3), *sse_reply(chat_events("two", "!"))]
    clocks = {"first_byte_timeout_s": 0.5, "keepalive_comment_s": 0.1}
    async with route({"one": silent, "two": late}, **clocks) as (_, gw):
        answer = await gw.ask("/chat", {**ASK, "stream": True}, headers=[("x-request-id", "r1")])
        assert (answer.status, answer.whole) == (200, True)
        assert answer.body.startswith(b": keep-alive\n\n: keep-alive\n\n")
        assert answer.body.count(b"data: {") == 2
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert (await gw.line("r1"))["hops"] == ["one;failed=first_byte_timeout"]


@pytest.mark.parametrize("last", ["refuses", "streams"])
async def test_a_stream_that_was_opened_early_goes_on(route: Any, last: str) -> None:
    second = sse_reply(chat_events("two")) if last == "streams" else error_reply(400, "not like this")
    scripts = {"one": error_reply(503), "two": second}
    async with route(scripts, early_stream=True) as (_, gw):
        answer = await gw.ask("/chat", {**ASK, "stream": True})
        assert answer.status == 200
        assert (b"not like this" in answer.body, answer.whole) == (last == "refuses", last == "streams")


async def test_a_route_that_nobody_answers_is_walked_once_more(
    running_gateway: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "_RETRY_PAUSE_S", (0.5, 0.5))
    port = free_port()
    with refusing_upstream() as dead:
        upstreams = [{"url": dead, "name": "one"}, {"url": f"http://127.0.0.1:{port}/v1", "name": "two"}]
        settings = {
            "upstreams": upstreams,
            "models": {"m": "r"},
            "routes": {"r": {"steps": [["one"], ["two"]]}},
        }
        async with running_gateway(**settings) as gw:
            asking = asyncio.create_task(gw.ask("/chat", ASK))
            await gw.until(lambda: b"dabom_retries_total{" in gw.gateway.metrics.text())
            async with ScriptedUpstream(says("two"), port=port):
                answer = await asking
                assert text_of(answer) == "two"
            hops = "one;failed=upstream_unreachable, two;failed=upstream_unreachable"
            route = answer.header("x-dabom-route")
            assert route == f"m;reason=model, {hops}, one;failed=upstream_unreachable, two;status=200"


async def test_retries_have_an_end(running_gateway: Run) -> None:
    with refusing_upstream() as dead:
        upstreams = [{"url": dead, "name": "one"}]
        async with running_gateway(upstreams=upstreams, models={"m": "one"}, retries=2) as gw:
            answer = await gw.ask("/chat", ASK)
            assert (answer.status, answer.error["code"]) == (502, "upstream_unreachable")
            assert (answer.header("x-dabom-route") or "").count("one;") == 3


async def test_the_hops_are_told_when_the_total_time_is_over(route: Any) -> None:
    async with route({"one": [Reset()], "two": [Stall()]}, total_timeout_s=0.3) as (_, gw):
        answer = await gw.ask("/chat", ASK)
        assert (answer.status, answer.error["code"]) == (504, "total_timeout")
        hops = "m;reason=model, one;failed=upstream_broken, two;failed=total_timeout"
        assert answer.header("x-dabom-route") == hops


async def test_names_that_nobody_serves_do_not_have_everybody_asked(route: Any) -> None:
    async with route({"one": says("ok"), "two": says("ok")}) as (ups, gw):
        for _ in range(20):
            assert (await gw.ask("/chat", {**ASK, "model": "nobody's"})).status == 404
        assert all(len(up.probes) <= 4 for up in ups.values())


async def test_a_full_queue_is_no_reason_to_wait_when_there_is_another(route: Any) -> None:
    busy = [Stall()]
    waits = {"concurrency": 1, "acquire_timeout_s": 0.2}
    async with route({"one": busy, "two": says("two")}, **waits) as (ups, gw), gw.wire() as wire:
        await wire.request("/chat", msgspec.json.encode(ASK))
        await ups["one"].wait_seen()
        answer = await gw.ask("/chat", ASK)
        assert text_of(answer) == "two"
        assert "one;failed=queue_timeout" in (answer.header("x-dabom-route") or "")
        wire.leave()
        await gw.until(lambda: not gw.gateway.running)


async def test_a_client_that_leaves_ends_it_and_says_nothing_against_the_upstream(route: Any) -> None:
    async with route({"one": [Stall()], "two": says("two")}) as (ups, gw):
        for _ in range(6):
            seen = len(ups["one"].seen)
            async with gw.wire() as wire:
                await wire.request("/chat", msgspec.json.encode(ASK))
                await ups["one"].wait_seen(seen + 1)
                wire.leave()
            await gw.until(lambda: not gw.gateway.running)
        one = gw.gateway.fleet.upstreams[0]
        assert one.health.breaker.failures == 0
        assert not ups["two"].seen


async def test_a_name_that_a_header_cannot_hold_is_written_otherwise(running_gateway: Run) -> None:
    async with ScriptedUpstream(says("ok")) as up:
        settings = {"upstreams": [{"url": up.url, "name": "서버 1,;"}], "models": {"모델": "서버 1,;"}}
        async with running_gateway(**settings) as gw:
            answer = await gw.ask("/chat", {**ASK, "model": "모델"})
            route = answer.header("x-dabom-route")
            assert route == "%EB%AA%A8%EB%8D%B8;reason=model, %EC%84%9C%EB%B2%84%201%2C%3B;status=200"


@pytest.mark.parametrize(("method", "asked"), [("GET", 2), ("POST", 2), ("PUT", 1), ("DELETE", 1)])
async def test_a_change_of_what_one_upstream_keeps_is_not_asked_of_another(
    route: Any, method: str, asked: int
) -> None:
    body = None if method in ("GET", "DELETE") else b"some bytes"
    kind = [("content-type", "application/octet-stream")]
    async with route({"one": error_reply(503), "two": error_reply(503)}) as (ups, gw):
        answer = await gw.ask("/v1/files/f1", body, method=method, headers=kind)
        assert answer.status == 503
        assert sum(len(up.seen) for up in ups.values()) == asked
