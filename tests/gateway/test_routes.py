"""Requests through a fleet: where they go by name, by what they hold and by who is fit."""

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

    from tests.gateway.conftest import Answer, Run, RunningGateway

    from dabom.testing import Seen, Step

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)
PICTURE = {"type": "image_url", "image_url": {"url": PIXEL}}
FLEET: dict[str, dict[str, Any]] = {
    "mac": {"modalities": [], "model": "qwen3-14b"},
    "text": {"modalities": [], "model": "qwen3-30b"},
    "vl30": {"modalities": ["image", "video"], "model": "qwen3-vl-30b"},
    "vl8": {"modalities": ["image", "video"], "model": "qwen3-vl-8b"},
}
RULES: dict[str, Any] = {
    "models": {"office": "chat", "vision-auto": "vision"},
    "routes": {
        "chat": {"steps": [["mac"], ["text"]]},
        "vision": {"steps": [["vl30"], ["vl8"]]},
    },
    "auto": [
        {"modalities": ["image", "video"], "tasks": ["fast"], "route": "vl8"},
        {"modalities": ["image", "video"], "route": "vision"},
        {"tasks": ["agent", "coding"], "route": "vision"},
        {"tasks": ["thinking"], "route": "text"},
        {"route": "chat"},
    ],
}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content) if len(content) > 1 else content[0]}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def clip(number: int, size: int = 3000) -> dict[str, Any]:
    octets = base64.b64encode(random.Random(number).randbytes(size)).decode()
    return {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{octets}"}}


def ask(model: str | None, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**({} if model is None else {"model": model}), "messages": list(messages), **more}


def named(seen: Seen) -> list[Step]:
    return json_reply(chat_answer(str(seen.json().get("model"))))


@pytest.fixture
def fleet(running_gateway: Run) -> Any:
    """The four upstreams of `FLEET` behind `RULES`; each answers with the model that it was asked for."""

    @asynccontextmanager
    async def start(**settings: Any) -> AsyncIterator[tuple[dict[str, ScriptedUpstream], RunningGateway]]:
        async with AsyncExitStack() as stack:
            ups = {
                name: await stack.enter_async_context(ScriptedUpstream(named, models=[one["model"]]))
                for name, one in FLEET.items()
            }
            upstreams = [{"url": up.url, "name": name, **FLEET[name]} for name, up in ups.items()]
            yield (
                ups,
                await stack.enter_async_context(running_gateway(upstreams=upstreams, **(RULES | settings))),
            )

    return start


def where(answer: Answer) -> str:
    """The first words of the route's header, and the model that was asked in the end."""
    assert answer.status == 200, answer
    route = (answer.header("x-dabom-route") or "").split(",")[0]
    return f"{route} -> {answer.json()['choices'][0]['message']['content']}"


@pytest.mark.parametrize("path", ["/chat", "/v1/chat/completions", "/chat/batch"])
@pytest.mark.parametrize(
    ("body", "model"),
    [
        (ask("auto", user("hello")), "qwen3-14b"),
        (ask(None, user("hello")), "None"),  # what is not in the body is not put into it
        (ask("auto", user("why?"), chat_template_kwargs={"enable_thinking": True}), "qwen3-30b"),
        (ask("auto-thinking", user("why?")), "qwen3-30b"),
        (ask("auto", user(PICTURE, text("what?"))), "qwen3-vl-30b"),
        (ask("auto-fast", user(PICTURE, text("what?"))), "qwen3-vl-8b"),
        (ask("auto", user(clip(1), text("what?"))), "qwen3-vl-30b"),
        (ask("agent", user("press the button")), "qwen3-vl-30b"),
        (ask("coding", user("write a page")), "qwen3-vl-30b"),
        (
            ask("auto", user("look"), {"role": "tool", "content": [PICTURE], "tool_call_id": "1"}),
            "qwen3-vl-30b",
        ),
        (ask("office", user("hello")), "qwen3-14b"),
        (ask("vision-auto", user("hello")), "qwen3-vl-30b"),
        (ask("qwen3-vl-8b", user(PICTURE, text("what?"))), "qwen3-vl-8b"),
        (ask("office", user(PICTURE, text("what?"))), "qwen3-vl-30b"),
        (ask("qwen3-30b", user(PICTURE, text("what?"))), "qwen3-vl-30b"),
    ],
)
async def test_where_a_request_goes(fleet: Any, path: str, body: dict[str, Any], model: str) -> None:
    async with fleet() as (_, gw):
        if path == "/chat/batch":
            answer = await gw.ask(path, {"items": [{"id": 1, "body": body}]})
            line = msgspec.json.decode(answer.body)
            assert line["body"]["choices"][0]["message"]["content"] == model
        else:
            assert where(await gw.ask(path, body)).endswith(f"-> {model}")


async def test_the_header_tells_why(fleet: Any) -> None:
    async with fleet(default_route="chat") as (_, gw):
        picture = user(PICTURE, text("what?"))
        assert where(await gw.ask("/chat", ask("auto", picture))).startswith("vision;reason=auto ")
        assert where(await gw.ask("/chat", ask("office", picture))).startswith("vision;reason=modality ")
        assert where(await gw.ask("/chat", ask("office", user("hi")))).startswith("office;reason=model ")
        assert where(await gw.ask("/chat", ask("gpt-4o", user("hi")))).startswith("chat;reason=default ")
        line = await gw.line((await gw.ask("/chat", ask("auto", picture))).header("x-request-id") or "")
        assert (line["route"], line["reason"], line["upstream"]) == ("vision", "auto", "vl30")


async def test_who_cannot_be_served_is_told(fleet: Any) -> None:
    async with fleet() as (ups, gw):
        unknown = await gw.ask("/chat", ask("gpt-4o", user("hi")))
        assert (unknown.status, unknown.error["code"]) == (404, "model_not_found")
        assert unknown.error["message"].startswith("The model `gpt-4o` does not exist")
        sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
        deaf = await gw.ask("/chat", ask("auto", user(sound, text("what?"))))
        assert (deaf.status, deaf.error["code"]) == (400, "modality_not_served")
        assert "audio" in deaf.error["message"]
        assert not any(up.seen for up in ups.values())


async def test_a_picture_does_not_pin_the_conversation_for_ever(fleet: Any) -> None:
    talk = [user(text("what is this?"), PICTURE), assistant("a receipt")]
    models, left_out = [], []
    async with fleet() as (ups, gw):
        for question in ("and the date?", "and the sum?", "now write a poem", "a longer one"):
            talk.append(user(question))
            answer = await gw.ask("/chat", ask("auto", *talk))
            models.append(where(answer).split("-> ")[1])
            left_out.append("left_out=1" in (answer.header("x-dabom-route") or ""))
            talk.append(assistant("so"))
        assert models == ["qwen3-vl-30b", "qwen3-vl-30b", "qwen3-14b", "qwen3-14b"]
        assert left_out == [False, False, True, True]
        sent = ups["mac"].seen[-1].json()["messages"]
        note = "[image of an earlier turn: left out, this model does not take it]"
        assert sent[0]["content"] == [text("what is this?"), text(note)]
        assert sent[1:] == talk[1:-1]
        talk += [user(PICTURE, text("and this one?"))]
        assert where(await gw.ask("/chat", ask("auto", *talk))).endswith("qwen3-vl-30b")
        assert ups["vl30"].seen[-1].json()["messages"] == talk  # who can see gets all of it as it came


async def test_a_named_model_that_sees_nothing_goes_on_when_the_picture_is_old(fleet: Any) -> None:
    talk = [
        user(PICTURE, text("what?")),
        assistant("a cat"),
        *[user("and?"), assistant("so")] * 3,
        user("hi"),
    ]
    async with fleet() as (ups, gw):
        assert (
            where(await gw.ask("/chat", ask("office", *talk)))
            == "office;reason=model;left_out=1 -> qwen3-14b"
        )
        assert b"base64" not in ups["mac"].seen[0].body


async def test_the_turns_that_count_can_be_set(fleet: Any) -> None:
    talk = [user(PICTURE, text("what?")), assistant("a cat"), user("and?")]
    async with fleet(media_turns=1) as (_, gw):
        assert where(await gw.ask("/chat", ask("auto", *talk))).endswith("qwen3-14b")


# replicas


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
        assert [len(up.seen) for up in ups.values()] == [20, 20]


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
