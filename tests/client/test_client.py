from __future__ import annotations

import asyncio
import hashlib
from contextlib import aclosing

import pytest

from dabom.client import AnalysisResult, Client, Clocks, Request, Retry, request, user
from dabom.client.connection import wait_before
from dabom.errors import AnswerBroken, AnswerTimeout, AskError, ConnectFailed, Refused
from dabom.testing import (
    Close,
    Reset,
    ScriptedUpstream,
    Stall,
    Wait,
    chat_answer,
    chat_events,
    cut_at,
    drip,
    error_reply,
    in_turn,
    json_reply,
    raw_reply,
    refusing_upstream,
    sent_bytes,
    sse_event,
    sse_reply,
)

_ASK = request(user("안녕하세요, 오늘의 비밀 문장입니다"), model="qwen")


async def _texts(client: Client, asked: Request = _ASK) -> list[str]:
    async with aclosing(client.stream(asked)) as deltas:
        return [delta.text async for delta in deltas]


@pytest.mark.parametrize("base", ["root", "url"])
async def test_ask_reaches_a_root_and_a_v1_base_alike(base: str) -> None:
    async with (
        ScriptedUpstream(json_reply(chat_answer("반가워요"), headers=[("X-Request-Id", "r9")])) as upstream,
        Client(getattr(upstream, base), api_key="k1") as client,
    ):
        answer = await client.ask(_ASK)
    assert (answer.text, answer.finish_reason, answer.request_id) == ("반가워요", "stop", "r9")
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 3
    seen = upstream.seen[0]
    assert seen.path == "/v1/chat/completions"
    assert seen.body == _ASK.body
    assert seen.header("authorization") == "Bearer k1"
    assert seen.header("content-length") == str(_ASK.size)


async def test_a_large_body_arrives_byte_for_byte_on_a_reused_connection() -> None:
    pieces = (b'{"messages":[', b'"' + bytes(range(65, 91)) * 200_000 + b'"', b",1" * 10, b"]}")
    big = Request(pieces)
    async with ScriptedUpstream(keep_bodies=False) as upstream, Client(upstream.root) as client:
        for _ in range(3):
            await client.ask(big, path="/chat")
    assert {seen.sha256 for seen in upstream.seen} == {hashlib.sha256(big.body).hexdigest()}
    assert upstream.connections_total == 1


@pytest.mark.parametrize("size", [1, 7, 4096])
async def test_stream_gives_deltas_whatever_the_pieces(size: int) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
    events = [b": ping\n\n", *chat_events("안녕", "하세요"), usage]
    async with (
        ScriptedUpstream(drip(sse_reply(events), size)) as upstream,
        Client(upstream.root) as client,
        aclosing(client.stream(_ASK)) as stream,
    ):
        deltas = [delta async for delta in stream]
    assert "".join(delta.text for delta in deltas) == "안녕하세요"
    assert deltas[1].finish_reason == "stop"
    assert deltas[-1].usage is not None
    assert deltas[-1].usage.total_tokens == 5
    assert upstream.seen[0].json()["stream"] is True


async def test_a_stream_that_ends_early_is_broken_never_whole() -> None:
    whole = sse_reply(chat_events("a", "b"))
    size = len(sent_bytes(whole))
    without_done = sse_reply(chat_events("a"), done=False)
    scripts = [
        without_done,
        cut_at(whole, size - 20, Reset()),
        cut_at(whole, size - 20, Close()),
        [*without_done[:-1], Close()],
    ]
    seen: list[str] = []

    async def read(client: Client) -> None:
        async with aclosing(client.stream(_ASK)) as deltas:
            async for delta in deltas:
                seen.append(delta.text)  # noqa: PERF401 an extend would lose what came before the fault

    for script in scripts:
        waiting = [*script[:-1], Wait(0.05), script[-1]]
        async with ScriptedUpstream(waiting) as upstream, Client(upstream.root) as client:
            with pytest.raises(AnswerBroken):
                await read(client)
    assert seen == ["a", "a", "b", "a", "b", "a"]


_IDLE = {"error": {"message": "fell silent", "type": "upstream_error", "code": "idle_timeout"}}
_DIED = {"error": {"message": "EngineCore died", "type": "InternalServerError", "code": 500}}


@pytest.mark.parametrize(
    ("event", "status", "code"),
    [
        (b"event: error\n" + sse_event(_IDLE), 502, "idle_timeout"),
        (sse_event(_DIED), 500, "InternalServerError"),
        (b'data: {"id":"cut insi\n\nevent: error\n' + sse_event(_IDLE), 502, "idle_timeout"),
    ],
)
async def test_an_error_inside_a_stream_is_raised_even_before_done(
    event: bytes, status: int, code: str
) -> None:
    async with (
        ScriptedUpstream(sse_reply([*chat_events("a"), event])) as upstream,
        Client(upstream.root) as client,
    ):
        with pytest.raises(Refused) as caught:
            await _texts(client)
    assert (caught.value.status, caught.value.code) == (status, code)


async def test_garbage_in_a_stream_is_broken() -> None:
    async with (
        ScriptedUpstream(sse_reply([b"data: {oops\n\n", *chat_events("a")])) as upstream,
        Client(upstream.root) as client,
    ):
        with pytest.raises(AnswerBroken):
            await _texts(client)


async def test_a_server_that_does_not_stream_gives_one_delta() -> None:
    async with (
        ScriptedUpstream(json_reply(chat_answer("whole"))) as upstream,
        Client(upstream.root) as client,
    ):
        assert await _texts(client) == ["whole"]


async def test_leaving_a_stream_closes_its_connection() -> None:
    script = [*sse_reply(chat_events("a"), done=False)[:-1], Stall()]
    async with ScriptedUpstream(script) as upstream, Client(upstream.root) as client:
        async with aclosing(client.stream(_ASK)) as deltas:
            async for _ in deltas:
                break
        await upstream.wait_closed(within_s=2)


async def test_refusals_carry_status_code_and_id_but_no_prompt() -> None:
    script = error_reply(400, f"bad input {_ASK.prompts[0]}", headers=[("X-Request-Id", "r2")])
    async with ScriptedUpstream(script) as upstream, Client(upstream.root) as client:
        with pytest.raises(Refused) as caught:
            await client.ask(_ASK)
    error = caught.value
    assert (error.status, error.code, error.request_id) == (400, "BadRequestError", "r2")
    assert "비밀 문장" not in str(error)
    assert str(error).startswith("bad input")


@pytest.mark.parametrize(
    "script",
    [
        raw_reply(b"not json", headers=[("content-type", "application/json")]),
        json_reply({"choices": []}),
        json_reply({"choices": [{"index": 0}]}),
        json_reply({"object": "list"}),
        cut_at(json_reply(chat_answer("x" * 500)), 300, Close()),
        cut_at(json_reply(chat_answer("x")), 5, Close()),
        [Close()],
    ],
)
async def test_an_answer_that_is_none_is_broken(script: list[Close]) -> None:
    async with ScriptedUpstream(script) as upstream, Client(upstream.root) as client:
        with pytest.raises(AnswerBroken):
            await client.ask(_ASK)


async def test_parse_gives_the_typed_answer_or_says_why_not() -> None:
    good = chat_answer('{"scene":"검은 화면","on_screen_text":"","speech":"말","sound":""}')
    cut = chat_answer('{"scene":"검은')
    cut["choices"][0]["finish_reason"] = "length"
    async with (
        ScriptedUpstream(in_turn(json_reply(good), json_reply(cut))) as upstream,
        Client(upstream.root) as client,
    ):
        assert (await client.ask(_ASK)).parse(AnalysisResult).speech == "말"
        with pytest.raises(AnswerBroken, match="max_tokens"):
            (await client.ask(_ASK)).parse(AnalysisResult)


async def test_clocks_tell_the_first_byte_from_the_idle_time() -> None:
    clocks = Clocks(first_byte_s=0.2, idle_s=0.2)
    silent = [*sse_reply(chat_events("a"), done=False)[:-1], Stall()]
    async with (
        ScriptedUpstream(in_turn([Stall()], silent)) as upstream,
        Client(upstream.root, clocks=clocks) as client,
    ):
        for _ in range(2):
            with pytest.raises(AnswerTimeout):
                await _texts(client)
        await upstream.wait_closed(within_s=2)


async def test_the_total_clock_cuts_a_slow_stream() -> None:
    slow = drip(sse_reply(chat_events(*"abcdefgh")), 40, 0.05)
    async with (
        ScriptedUpstream(slow) as upstream,
        Client(upstream.root, clocks=Clocks(total_s=0.3)) as client,
    ):
        with pytest.raises(AnswerTimeout):
            await _texts(client)


async def test_nobody_there() -> None:
    with refusing_upstream() as url:
        async with Client(url) as client:
            with pytest.raises(ConnectFailed, match="could not be reached"):
                await client.ask(_ASK)


async def test_retries_only_a_503_that_says_when() -> None:
    busy = error_reply(503, headers=[("Retry-After", "0")])
    retry = Retry(attempts=3, first_wait_s=0.01)
    async with (
        ScriptedUpstream(in_turn(busy, busy, json_reply(chat_answer("ok")))) as upstream,
        Client(upstream.root, retry=retry) as client,
    ):
        assert (await client.ask(_ASK)).text == "ok"
    assert [seen.body for seen in upstream.seen] == [_ASK.body] * 3
    async with ScriptedUpstream(error_reply(500)) as upstream, Client(upstream.root, retry=retry) as client:
        with pytest.raises(Refused):
            await client.ask(_ASK)
    assert len(upstream.seen) == 1


@pytest.mark.parametrize(
    ("error", "attempt", "wait"),
    [
        (ConnectFailed("x"), 0, 0.5),
        (ConnectFailed("x"), 2, 2.0),
        (ConnectFailed("x"), 5, None),
        (Refused("x", status=503, code=None, retry_after_s=3), 0, 3.5),
        (Refused("x", status=503, code=None, retry_after_s=90), 0, None),
        (Refused("x", status=503, code=None), 0, None),
        (Refused("x", status=429, code=None, retry_after_s=1), 0, None),
        (AnswerBroken("x"), 0, None),
    ],
)
def test_waits_grow_and_end(error: AskError, attempt: int, wait: float | None) -> None:
    assert wait_before(Retry(attempts=5, first_wait_s=1), attempt, error, chance=0.5) == wait


async def test_models_and_health() -> None:
    async with ScriptedUpstream(models=["qwen", "llava"]) as upstream, Client(upstream.url) as client:
        assert [model.id for model in await client.models()] == ["qwen", "llava"]
    paths = {"/healthz": error_reply(404), "/health": json_reply({})}
    async with (
        ScriptedUpstream(lambda seen: paths[seen.path], models=None) as upstream,
        Client(upstream.url) as client,
    ):
        health = await client.health()
    assert (health.ok, health.path) == (True, "/health")
    async with (
        ScriptedUpstream(json_reply({"ok": True}, headers=[("x-request-id", "r3")]), models=None) as upstream,
        Client(upstream.root) as client,
    ):
        health = await client.health()
    assert (health.ok, health.path, health.request_id) == (True, "/healthz", "r3")


async def test_ready_asks_the_gateway_and_is_false_while_nobody_listens() -> None:
    script = in_turn(error_reply(503), json_reply({"ready": True}))
    async with ScriptedUpstream(script) as upstream, Client(upstream.root) as client:
        assert [await client.ready(), await client.ready()] == [False, True]
    assert upstream.seen[0].path == "/readyz"
    with refusing_upstream() as url:
        async with Client(url) as client:
            assert not await client.ready()


async def test_concurrency_holds_requests_back() -> None:
    peak = 0

    async with ScriptedUpstream([Stall()]) as upstream, Client(upstream.root, concurrency=2) as client:
        asks = [asyncio.create_task(client.ask(_ASK)) for _ in range(5)]
        await upstream.wait_seen(2, complete=True)
        await asyncio.sleep(0.05)
        peak = len(upstream.seen)
        for ask in asks:
            ask.cancel()
        await asyncio.gather(*asks, return_exceptions=True)
    assert peak == 2


async def test_a_closed_client_says_how_to_open_it() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await Client("http://127.0.0.1:1").ask(_ASK)
