"""Replicas of one step: who gets a request, who is fit for one, and what is learned of them."""

from __future__ import annotations

import asyncio
import base64
import random
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from dabom.gateway.health import BreakerState
from dabom.testing import (
    Close,
    ScriptedUpstream,
    Stall,
    Wait,
    WaitFor,
    chat_answer,
    error_reply,
    free_port,
    in_turn,
    json_reply,
    raw_reply,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.gateway.conftest import Run, RunningGateway

    from dabom.testing import Seen, Step


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content) if len(content) > 1 else content[0]}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def clip(number: int, size: int = 3000) -> dict[str, Any]:
    octets = base64.b64encode(random.Random(number).randbytes(size)).decode()
    return {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{octets}"}}


def ask(model: str | None, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**({} if model is None else {"model": model}), "messages": list(messages), **more}


@pytest.fixture
def replicas(running_gateway: Run) -> Any:
    """Two upstreams, `a` and `b`, that serve `m`; scripts by name."""

    @asynccontextmanager
    async def start(
        scripts: dict[str, Any], **settings: Any
    ) -> AsyncIterator[tuple[dict[str, ScriptedUpstream], RunningGateway]]:
        async with AsyncExitStack() as stack:
            ups = {
                name: await stack.enter_async_context(ScriptedUpstream(script, models=["m"]))
                for name, script in scripts.items()
            }
            upstreams = [{"url": up.url, "name": name} for name, up in ups.items()]
            routes = {"r": {"steps": [list(ups)]}}
            given = {"routes": routes, "models": {"m": "r"}, "concurrency": 50} | settings
            yield ups, await stack.enter_async_context(running_gateway(upstreams=upstreams, **given))

    return start


OK = json_reply(chat_answer())


async def test_the_same_clip_meets_the_same_replica_and_others_spread(replicas: Any) -> None:
    async with replicas({"a": OK, "b": OK}) as (ups, gw):
        bodies = [ask("m", user(text("what happens?"), clip(number))) for number in range(40)]
        for body in bodies + bodies:
            assert (await gw.ask("/chat", body)).status == 200
        seen = {name: [seen.body for seen in up.seen] for name, up in ups.items()}
        for sent in seen.values():
            assert len(sent) == 2 * len(set(sent))
            assert len(set(sent)) >= 10  # 20 expected


async def test_a_busy_replica_gives_its_clips_away(replicas: Any) -> None:
    gate = asyncio.Event()
    held = [WaitFor(gate), *OK]
    async with replicas({"a": held, "b": held}, affinity_margin_tokens=20_000) as (ups, gw):
        body = ask("m", user(clip(1)))
        async with asyncio.TaskGroup() as group:
            for count in range(1, 9):
                group.create_task(gw.ask("/chat", body))
                await gw.until(lambda: sum(len(up.seen) for up in ups.values()) == count)  # noqa: B023
            shares = sorted(len(up.seen) for up in ups.values())
            assert shares[0] >= 3  # a clip counts for 12,290 tokens and an answer
            assert shares[1] > shares[0] - 1
            gate.set()


async def test_a_batch_is_shared_by_its_replicas(replicas: Any) -> None:
    async with replicas({"a": [Wait(0.01), *OK], "b": [Wait(0.01), *OK]}, concurrency=2) as (ups, gw):
        items = [{"id": number, "body": ask("m", user("hello"))} for number in range(40)]
        answer = await gw.ask("/chat/batch", {"items": items})
        assert len(answer.body.splitlines()) == 40
        assert all(18 <= len(up.seen) <= 22 for up in ups.values())


# health


async def test_a_dead_replica_is_passed_over_and_comes_back(running_gateway: Run) -> None:
    health = {"breaker_failures": 3, "breaker_open_s": 0.3, "probe_interval_s": 60}
    port = free_port()
    async with ScriptedUpstream(OK, models=["m"]) as alive:
        upstreams = [
            {"url": f"http://127.0.0.1:{port}/v1", "name": "a", "model": "m"},
            {"url": alive.url, "name": "b", "model": "m"},
        ]
        async with running_gateway(upstreams=upstreams, health=health) as gw:
            first = "m;reason=model, a;failed=upstream_unreachable, b;status=200"
            for expected in [first] * 3 + ["m;reason=model, b;status=200"] * 2:
                answer = await gw.ask("/chat", ask("m", user("hi")))
                assert answer.header("x-dabom-route") == expected
            page = (await gw.ask("/metrics")).body.decode()
            assert 'dabom_breaker_state{upstream="a"} 2.0' in page
            assert 'dabom_breaker_changes_total{state="open",upstream="a"} 1.0' in page
            one = gw.gateway.fleet.upstreams[0]
            await gw.until(lambda: one.health.fit(asyncio.get_running_loop().time()))
            async with ScriptedUpstream(OK, models=["m"], port=port):
                back = await gw.ask("/chat", ask("m", user("hi")))
                assert back.header("x-dabom-route") == "m;reason=model, a;status=200"
            assert one.health.breaker.state is BreakerState.CLOSED


async def test_when_nobody_is_fit_they_are_asked_all_the_same(replicas: Any) -> None:
    broken = in_turn(*[error_reply(500)] * 3, OK)
    async with replicas({"a": broken, "b": broken}, health={"breaker_failures": 1}) as (_, gw):
        statuses = [(await gw.ask("/chat", ask("m", user("hi")))).status for _ in range(2)]
        assert statuses == [500, 200]


async def test_an_overloaded_replica_is_left_alone_for_as_long_as_it_asks(replicas: Any) -> None:
    busy = in_turn(error_reply(429, headers=[("retry-after", "30")]), OK)
    async with replicas({"a": busy, "b": OK}) as (ups, gw):
        for _ in range(4):
            assert (await gw.ask("/chat", ask("m", user("hi")))).status == 200
        assert (len(ups["a"].seen), len(ups["b"].seen)) == (1, 4)
        assert gw.gateway.fleet.upstreams[0].health.breaker.failures == 0


async def test_probes_find_out_who_is_down_and_who_is_back(running_gateway: Run) -> None:
    health = {"probe_interval_s": 0.05, "probes_down": 2, "probes_up": 2}
    async with ScriptedUpstream(models=["m"]) as one, ScriptedUpstream(models=["m"]) as other:
        upstreams = [{"url": one.url, "name": "a"}, {"url": other.url, "name": "b"}]
        async with running_gateway(upstreams=upstreams, health=health) as gw:
            a, b = gw.gateway.fleet.upstreams
            await gw.until(lambda: bool(a.models and b.models))
            await one.__aexit__()
            await gw.until(lambda: not a.health.probes.up)
            assert b.health.probes.up
            answer = await gw.ask("/chat", ask("m", user("hi")))
            assert answer.header("x-dabom-route") == "m;reason=model, b;status=200"
            async with ScriptedUpstream(models=["m"], port=one.port):
                await gw.until(lambda: a.health.probes.up)


async def test_a_slow_probe_under_load_says_nothing_against_an_upstream(running_gateway: Run) -> None:
    """A model server that decodes a clip answers nothing else meanwhile."""

    def slow(seen: Seen) -> list[Step]:
        return [Stall()]

    health = {"probe_interval_s": 0.03, "probe_timeout_s": 0.03, "probes_down": 2}
    async with ScriptedUpstream(slow, models=None) as up, ScriptedUpstream(models=["m"]) as other:
        upstreams = [{"url": up.url, "name": "a", "model": "m"}, {"url": other.url, "name": "b"}]
        async with (
            running_gateway(upstreams=upstreams, models={"m": "a"}, health=health) as gw,
            gw.wire() as wire,
        ):
            a = gw.gateway.fleet.upstreams[0]
            await wire.request("/chat", msgspec.json.encode(ask("m", user("hi"))))
            await gw.until(lambda: a.permits.held == 1)
            a.health.succeeded(asyncio.get_running_loop().time())
            await up.wait_seen(8)
            assert a.health.probes.up
            wire.leave()
            await gw.until(lambda: not a.permits.held)
            await gw.until(lambda: not a.health.probes.up)  # nothing runs, and it still does not answer


async def test_what_an_upstream_says_of_itself_is_taken_over(running_gateway: Run) -> None:
    models = [
        {"id": "qwen3-vl-8b", "max_model_len": 40_960},
        {"id": "adapter", "max_model_len": 40_960, "parent": "qwen3-vl-8b"},
    ]
    llama = [
        {
            "id": "tiny",
            "meta": {"n_ctx": 2048},
            "architecture": {"input_modalities": ["text", "image", "smell"]},
        }
    ]

    def lists(entries: list[dict[str, Any]]) -> list[Step]:
        return raw_reply(
            msgspec.json.encode({"data": entries}), headers=[("content-type", "application/json")]
        )

    async with (
        ScriptedUpstream(lists(models), models=None) as one,
        ScriptedUpstream(lists(llama), models=None) as two,
    ):
        upstreams = [{"url": one.url, "name": "vllm"}, {"url": two.url, "name": "llama"}]
        async with running_gateway(upstreams=upstreams) as gw:
            vllm, llama_cpp = gw.gateway.fleet.upstreams
            await gw.until(lambda: bool(vllm.models and llama_cpp.models))
            assert (set(vllm.models or ()), vllm.room) == ({"qwen3-vl-8b", "adapter"}, 40_960)
            assert vllm.known.modalities is None
            assert (llama_cpp.room, set(llama_cpp.known.modalities or ())) == (2048, {"text", "image"})


@pytest.mark.parametrize(
    "script", [[Close()], error_reply(401), raw_reply(b'{"data":[]}')], ids=["FIN", "401", "no model"]
)
async def test_a_configured_model_needs_no_list(running_gateway: Run, script: list[Step]) -> None:
    def answer(seen: Seen) -> list[Step]:
        return script if seen.method == "GET" else OK

    async with ScriptedUpstream(answer, models=None) as up, ScriptedUpstream(models=["x"]) as other:
        upstreams = [{"url": up.url, "name": "a", "model": "m"}, {"url": other.url, "name": "b"}]
        async with running_gateway(upstreams=upstreams, models={"public": "a"}) as gw:
            for name in ("public", "m"):
                assert (await gw.ask("/chat", ask(name, user("hi")))).status == 200
            assert [seen.json()["model"] for seen in up.seen if seen.method == "POST"] == ["m", "m"]


async def _ask_many(gw: RunningGateway, path: str, count: int) -> list[int]:
    """The statuses of so many requests at once, or of so many items."""
    body = ask("m", user("hello"))
    if path == "/chat":
        return [answer.status for answer in await asyncio.gather(*(gw.ask(path, body) for _ in range(count)))]
    answer = await gw.ask(path, {"items": [{"id": number, "body": body} for number in range(count)]})
    return [msgspec.json.decode(line)["status"] for line in answer.body.splitlines()]


@pytest.mark.parametrize("path", ["/chat", "/chat/batch"])
async def test_those_who_wait_for_a_replica_leave_it_when_its_breaker_opens(replicas: Any, path: str) -> None:
    settings = {"concurrency": 2, "first_byte_timeout_s": 0.2, "health": {"breaker_failures": 2}}
    async with replicas({"a": [Stall()], "b": OK}, **settings) as (ups, gw):
        assert await _ask_many(gw, path, 30) == [200] * 30
        assert len(ups["a"].seen) <= 4


@pytest.mark.parametrize("path", ["/chat", "/chat/batch"])
async def test_those_who_wait_for_a_replica_leave_it_when_it_wants_to_be_left_alone(
    replicas: Any, path: str
) -> None:
    busy = [Wait(0.05), *error_reply(429, "slow down", headers=[("retry-after", "9")])]
    async with replicas({"a": busy, "b": OK}, concurrency=1) as (ups, gw):
        assert await _ask_many(gw, path, 30) == [200] * 30
        assert len(ups["a"].seen) == 1
