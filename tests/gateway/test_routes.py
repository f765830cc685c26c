"""Requests through a fleet: where they go by name, by what they hold and by who is fit."""

from __future__ import annotations

import base64
import random
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from dabom.testing import (
    ScriptedUpstream,
    chat_answer,
    json_reply,
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


async def test_all_names_that_may_be_given_are_listed(fleet: Any) -> None:
    async with fleet() as (_, gw):
        entries = (await gw.ask("/v1/models")).json()["data"]
        names = [entry["id"] for entry in entries]
        assert names[:4] == ["qwen3-14b", "qwen3-30b", "qwen3-vl-30b", "qwen3-vl-8b"]
        assert {"office", "vision-auto", "auto", "auto-fast", "agent"} <= set(names[4:])
        for name in names:
            assert (await gw.ask("/chat", ask(name, user("hi")))).status == 200
