"""Streams whose upstream dies or hangs: the client is told, and nothing ends as whole."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from openai import APIError, AsyncOpenAI

from dabom.client.sse import EventReader
from dabom.testing import (
    Close,
    Reset,
    Send,
    Stall,
    WaitFor,
    chat_events,
    chunk,
    cut_at,
    drip,
    head,
    recording,
    sent_bytes,
    sse_event,
    sse_reply,
)
from dabom.testing.recorded import load_recording

if TYPE_CHECKING:
    from tests.gateway.conftest import Answer, Behind

    from dabom.testing import Step

SSE = ("content-type", "text/event-stream; charset=utf-8")
CHUNKED = ("transfer-encoding", "chunked")
COMMENT = b": keep-alive\n\n"
EVENTS = chat_events("안녕", "하세요", " 🎬 ", "끝")
WIRED = [sse_event(event) for event in EVENTS]
DONE = sse_event("[DONE]")
ENDS: dict[str, Step] = {"FIN": Close(), "RST": Reset()}


def spec_events(body: bytes) -> list[str]:
    """The data of the events that a parser by the standard dispatches: a last one without its end is none."""
    text = body.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    events, data = list[str](), list[str]()
    for line in text.split("\n")[:-1]:
        name, _, value = line.partition(":")
        if not line and data:
            events.append("\n".join(data))
            data = []
        elif name == "data":
            data.append(value.removeprefix(" "))
    return events


def errors_in(answer: Answer) -> list[dict[str, Any]]:
    """The errors that a client's parser finds; two parsers must agree."""
    events = spec_events(answer.body)
    assert [event.data for event in EventReader().feed(answer.body)] == events
    found = []
    for event in events:
        try:
            value = msgspec.json.decode(event)
        except msgspec.DecodeError:
            continue  # the beginning of an event that was cut
        if isinstance(value, dict) and "error" in value:
            found.append(value["error"])
    return found


def told(answer: Answer, code: str) -> None:
    assert (answer.status, answer.whole) == (200, False)
    assert [error["code"] for error in errors_in(answer)] == [code]
    assert "error" in msgspec.json.decode(spec_events(answer.body)[-1])
    assert b"[DONE]" not in answer.body


PLACES: dict[str, int] = {
    "between events": len(WIRED[0]) + len(WIRED[1]),
    "inside an event": len(WIRED[0]) + 40,
    "inside a character": len(WIRED[0]) + WIRED[1].index("하".encode()) + 1,
    "before the last line end": len(WIRED[0]) + len(WIRED[1]) - 1,
    "inside the first word": len(WIRED[0]) + 3,
    "before the first event": 0,
}


def dying(place: int, end: Step, *, chunked: bool) -> list[Step]:
    text = b"".join([*WIRED, DONE])[:place]
    framing = CHUNKED if chunked else ("connection", "close")
    body = [Send(chunk(text) if chunked else text)] if text else []
    return [Send(head(200, [SSE, framing])), *body, end]


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "unframed"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("where", PLACES)
async def test_an_upstream_that_dies_mid_stream_is_told(
    behind: Behind, stream: dict[str, Any], where: str, end: str, chunked: bool
) -> None:
    place = PLACES[where]
    async with behind(dying(place, ENDS[end], chunked=chunked)) as (_, gw):
        answer = await gw.ask("/chat", stream, headers=[("x-request-id", "dying")])
        assert answer.status in (200, 502)
        if answer.status == 502:  # a reset may swallow what came just before it
            assert end == "RST" or where == "before the first event"
            return
        told(answer, "upstream_broken")
        sent = spec_events(b"".join(WIRED)[:place])
        assert spec_events(answer.body)[:-1] == sent[: len(spec_events(answer.body)) - 1]
        assert end == "RST" or len(spec_events(answer.body)) - 1 >= len(sent)
        line = await gw.line("dying")
        assert (line["code"], line["status"]) == ("upstream_broken", 200)


@pytest.mark.parametrize("end", ENDS)
async def test_a_break_inside_the_framing_is_told(behind: Behind, stream: dict[str, Any], end: str) -> None:
    script = sse_reply(EVENTS)
    size = len(sent_bytes(script))
    for octets in (size - 1, size - 3, size - 5, size - len(chunk(DONE)) - 5):
        async with behind(cut_at(script, octets, ENDS[end])) as (_, gw):
            answer = await gw.ask("/chat", stream)
            if answer.status == 502:
                assert end == "RST"
                continue
            assert not answer.whole
            assert [error["code"] for error in errors_in(answer)] == ["upstream_broken"]


async def test_a_break_inside_a_long_event_is_told(behind: Behind, stream: dict[str, Any]) -> None:
    gate = asyncio.Event()
    long = b"data: " + b"x" * 150_000
    script = [Send(head(200, [SSE, CHUNKED])), Send(chunk(WIRED[0] + long)), WaitFor(gate), Close()]
    async with behind(script) as (_, gw), gw.wire() as wire:
        await wire.request("/chat", msgspec.json.encode(stream))
        await wire.until(long)  # it has been passed on without its end
        gate.set()
        told(await wire.rest(), "upstream_broken")


async def ask_openai(gw: Any) -> list[str]:
    """What OpenAI's client gives out of a stream; raises what it raises."""
    texts: list[str] = []
    async with AsyncOpenAI(base_url=f"{gw.url}/v1", api_key="k", max_retries=0) as client:
        stream = await client.chat.completions.create(model="qwen", messages=[], stream=True)
        async for event in stream:
            texts += [choice.delta.content or "" for choice in event.choices]
    return texts


@pytest.mark.parametrize("where", PLACES)
async def test_openais_client_raises_when_the_upstream_dies(behind: Behind, where: str) -> None:
    async with behind(dying(PLACES[where], Close(), chunked=True)) as (_, gw):
        with pytest.raises(APIError) as caught:
            await ask_openai(gw)
        assert caught.value.code == "upstream_broken"


@pytest.mark.parametrize("split", [False, True], ids=["event by event", "in torn pieces"])
async def test_vllms_done_after_an_engine_crash_is_withheld(
    behind: Behind, stream: dict[str, Any], split: bool
) -> None:
    script = recording("vllm_stream_engine_killed")
    recorded = load_recording("vllm_stream_engine_killed").body.encode()
    async with behind(drip(script, 11) if split else script) as (_, gw):
        answer = await gw.ask("/v1/chat/completions", stream, headers=[("x-request-id", "killed")])
        assert answer.body == recorded.removesuffix(DONE)
        assert not answer.whole
        (error,) = errors_in(answer)
        assert error["message"].startswith("EngineCore encountered an issue")
        assert (await gw.line("killed"))["code"] == "upstream_broken"


async def test_openais_client_raises_after_an_engine_crash(behind: Behind) -> None:
    async with behind(recording("vllm_stream_engine_killed")) as (_, gw):
        with pytest.raises(APIError, match="EngineCore"):
            await ask_openai(gw)


async def test_vllm_silent_after_sigterm_is_cut_by_the_idle_clock(
    behind: Behind, stream: dict[str, Any]
) -> None:
    recorded = load_recording("vllm_stream_silent_after_sigterm").body.encode()
    script = recording("vllm_stream_silent_after_sigterm")
    async with behind(script, idle_timeout_s=0.3) as (upstream, gw):
        began = time.monotonic()
        answer = await gw.ask("/v1/chat/completions", stream)
        assert time.monotonic() - began >= 0.299
        assert answer.body.startswith(recorded)
        told(answer, "idle_timeout")
        await upstream.wait_closed()


async def test_comments_of_ours_do_not_feed_the_idle_clock(behind: Behind, stream: dict[str, Any]) -> None:
    script = [Send(head(200, [SSE, CHUNKED])), Send(chunk(WIRED[0])), Stall()]
    async with behind(script, idle_timeout_s=0.4, keepalive_comment_s=0.05) as (_, gw):
        answer = await gw.ask("/chat", stream)
        assert COMMENT in answer.body
        told(answer, "idle_timeout")


async def test_a_hang_inside_an_event_is_told(behind: Behind, stream: dict[str, Any]) -> None:
    script = [Send(head(200, [SSE, CHUNKED])), Send(chunk(WIRED[0] + WIRED[1][:40])), Stall()]
    async with behind(script, idle_timeout_s=0.2) as (_, gw):
        told(await gw.ask("/chat", stream), "idle_timeout")


async def test_the_total_clock_ends_an_endless_stream(behind: Behind, stream: dict[str, Any]) -> None:
    endless = sse_reply(EVENTS * 500, gap_s=0.02)
    async with behind(endless, total_timeout_s=0.4) as (upstream, gw):
        began = time.monotonic()
        answer = await gw.ask("/chat", stream)
        assert time.monotonic() - began >= 0.399
        told(answer, "total_timeout")
        await upstream.wait_closed()


async def test_silence_before_the_head_is_the_first_byte_clocks(
    behind: Behind, stream: dict[str, Any]
) -> None:
    async with behind([Stall()], first_byte_timeout_s=0.2, idle_timeout_s=0.05) as (_, gw):
        answer = await gw.ask("/chat", stream)
        assert (answer.status, answer.error["code"]) == (504, "first_byte_timeout")
