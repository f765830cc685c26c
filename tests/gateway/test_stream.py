"""Streams: relayed as they arrive, kept alive between events, and never ended as whole when they were not."""

from __future__ import annotations

import asyncio
import gzip
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from openai import AsyncOpenAI

from dabom.testing import (
    Close,
    Reset,
    Send,
    Wait,
    WaitFor,
    chat_events,
    chunk,
    drip,
    head,
    recording,
    sse_event,
    sse_reply,
)
from dabom.testing.recorded import load_recording

if TYPE_CHECKING:
    from tests.gateway.conftest import Behind

    from dabom.testing import Step

SSE = ("content-type", "text/event-stream; charset=utf-8")
CHUNKED = ("transfer-encoding", "chunked")
COMMENT = b": keep-alive\n\n"
EVENTS = chat_events("안녕", "하세요", " 🎬 ", "끝")
WIRED = [sse_event(event) for event in EVENTS]
DONE = sse_event("[DONE]")
ENDS: dict[str, Step] = {"FIN": Close(), "RST": Reset()}
# what a server may write, and a parser that rewrites would not give back
ODD = [
    b": a comment of theirs\n\n",
    b'event: delta\nid: 7\nretry: 10\ndata: {"a":1e5}\n\n',
    b"data: two\ndata: lines\n\n",
    b"data:no space\r\n\r\n",
    b"data: cr only\r\r",
    b'data: {"n":12345678901234567890,"s":"\\ud83d"}\n\n',
    b"unknown: field\n\n",
    b"\n\n\n",
    b"data: " + b"x" * 200_000 + b"\n\n",
    b"data: [DONE]\n\n",
]


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


async def test_the_first_event_arrives_while_the_upstream_stalls(
    behind: Behind, stream: dict[str, Any]
) -> None:
    gates = [asyncio.Event() for _ in WIRED]
    script: list[Step] = [Send(head(200, [SSE, CHUNKED]))]
    for gate, event in zip(gates, WIRED, strict=True):
        script += [Send(chunk(event)), WaitFor(gate)]
    async with behind([*script, Send(chunk(DONE)), Send(chunk(b""))]) as (_, gw), gw.wire() as wire:
        await wire.request("/chat", msgspec.json.encode(stream))
        for count, gate in enumerate(gates, 1):
            assert await wire.until(WIRED[count - 1]) == b"".join(WIRED[:count])
            gate.set()
        answer = await wire.rest()
        assert (answer.body, answer.whole) == (b"".join(WIRED) + DONE, True)
        assert answer.header("content-type") == SSE[1]


@pytest.mark.parametrize("framing", ["chunked", "to the end of the connection", "length"])
async def test_the_bytes_are_the_upstreams(behind: Behind, stream: dict[str, Any], framing: str) -> None:
    text = b"".join(ODD)
    if framing == "chunked":
        script = sse_reply(ODD, done=False)
    elif framing == "length":
        script = [Send(head(200, [SSE, ("content-length", str(len(text)))])), *map(Send, ODD)]
    else:
        script = sse_reply(ODD, done=False, chunked=False)
    async with behind(script) as (_, gw):
        answer = await gw.ask("/v1/chat/completions", stream)
        assert answer.whole
        assert answer.body == text


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
async def test_any_border_between_pieces_will_do(behind: Behind, stream: dict[str, Any], size: int) -> None:
    text = b"".join([*WIRED, ODD[1], ODD[3], DONE])
    pieces = [Send(chunk(text[at : at + size])) for at in range(0, len(text), size)]
    script = [Send(head(200, [SSE, CHUNKED])), *pieces, Send(chunk(b""))]
    async with behind(script) as (_, gw):
        answer = await gw.ask("/chat", stream)
        assert (answer.body, answer.whole) == (text, True)


async def test_torn_packets_make_no_difference(behind: Behind, stream: dict[str, Any]) -> None:
    async with behind(drip(sse_reply(EVENTS), 5)) as (_, gw):
        answer = await gw.ask("/chat", stream)
        assert (answer.body, answer.whole) == (b"".join(WIRED) + DONE, True)


@pytest.mark.parametrize(
    "name", ["vllm_stream", "vllm_stream_usage", "vllm_tools_stream", "llama_cpp_stream"]
)
async def test_recorded_streams_pass_untouched(behind: Behind, stream: dict[str, Any], name: str) -> None:
    async with behind(recording(name)) as (_, gw):
        answer = await gw.ask("/v1/chat/completions", stream)
        assert (answer.body.decode(), answer.whole) == (load_recording(name).body, True)


async def test_a_stream_may_end_without_done(behind: Behind, stream: dict[str, Any]) -> None:
    """The framing says that it is whole; /v1/responses of vLLM ends so."""
    async with behind(sse_reply(EVENTS, done=False)) as (_, gw):
        answer = await gw.ask("/v1/responses", stream)
        assert (answer.body, answer.whole) == (b"".join(WIRED), True)


async def test_silence_is_filled_with_comments(behind: Behind, stream: dict[str, Any]) -> None:
    gate = asyncio.Event()
    script = [
        Send(head(200, [SSE, CHUNKED])),
        Send(chunk(WIRED[0])),
        WaitFor(gate),
        Send(chunk(WIRED[1] + DONE)),
    ]
    async with behind([*script, Send(chunk(b""))], keepalive_comment_s=0.1) as (_, gw), gw.wire() as wire:
        await wire.request("/chat", msgspec.json.encode(stream))
        await wire.until(WIRED[0])
        first = time.monotonic()
        await wire.until(COMMENT * 3)
        assert time.monotonic() - first >= 0.25
        gate.set()
        answer = await wire.rest()
        assert answer.body.replace(COMMENT, b"") == WIRED[0] + WIRED[1] + DONE
        assert answer.whole
        assert spec_events(answer.body) == spec_events(WIRED[0] + WIRED[1] + DONE)


async def test_silence_before_the_first_event_is_filled_too(behind: Behind, stream: dict[str, Any]) -> None:
    gate = asyncio.Event()
    script = [Send(head(200, [SSE, CHUNKED])), WaitFor(gate), Send(chunk(DONE)), Send(chunk(b""))]
    async with behind(script, keepalive_comment_s=0.05) as (_, gw), gw.wire() as wire:
        await wire.request("/chat", msgspec.json.encode(stream))
        await wire.until(COMMENT)
        gate.set()
        assert (await wire.rest()).body.replace(COMMENT, b"") == DONE


async def test_a_steady_stream_has_no_comments(behind: Behind, stream: dict[str, Any]) -> None:
    steady = sse_reply(EVENTS * 5, gap_s=0.03)
    async with behind(steady, keepalive_comment_s=5) as (_, gw):
        assert COMMENT not in (await gw.ask("/chat", stream)).body


@pytest.mark.parametrize("cut", [1, 9, 40, len(WIRED[0]) - 1])
async def test_no_comment_stands_inside_an_event(behind: Behind, stream: dict[str, Any], cut: int) -> None:
    gate = asyncio.Event()
    script = [
        Send(head(200, [SSE, CHUNKED])),
        Send(chunk(WIRED[0] + WIRED[1][:cut])),
        WaitFor(gate),
        Send(chunk(WIRED[1][cut:])),
        Send(chunk(DONE)),
        Send(chunk(b"")),
    ]
    async with behind(script, keepalive_comment_s=0.05) as (_, gw), gw.wire() as wire:
        await wire.request("/chat", msgspec.json.encode(stream))
        await wire.until(COMMENT * 2)  # the beginning of the event is held back, so that they may be sent
        gate.set()
        answer = await wire.rest()
        assert answer.body.replace(COMMENT, b"") == WIRED[0] + WIRED[1] + DONE
        assert WIRED[1] in answer.body


async def test_no_comment_stands_inside_an_event_that_is_too_long_to_hold(
    behind: Behind, stream: dict[str, Any]
) -> None:
    long = b"data: " + b"x" * 150_000
    script = [Send(head(200, [SSE, CHUNKED])), Send(chunk(long)), Wait(0.4), Send(chunk(b"y\n")), Wait(0.2)]
    script += [Send(chunk(b"\n" + DONE)), Send(chunk(b""))]
    async with behind(script, keepalive_comment_s=0.05) as (_, gw):
        answer = await gw.ask("/chat", stream)
        assert answer.whole
        assert long + b"y\n\n" in answer.body
        assert answer.body.replace(COMMENT, b"") == long + b"y\n\n" + DONE


@pytest.mark.parametrize("end", [None, *ENDS])
async def test_nothing_of_ours_stands_inside_an_encoded_stream(
    behind: Behind, stream: dict[str, Any], end: str | None
) -> None:
    packed = gzip.compress(b"".join(WIRED) + DONE)
    start = head(200, [SSE, CHUNKED, ("content-encoding", "gzip")])
    script: list[Step] = [Send(start), Send(chunk(packed[:20])), Wait(0.2)]
    script += [Send(chunk(packed[20:])), Send(chunk(b""))] if end is None else [ENDS[end]]
    async with behind(script, keepalive_comment_s=0.05) as (_, gw), gw.wire() as wire:
        await wire.request("/chat", msgspec.json.encode(stream))
        assert await wire.until(packed[:20]) == packed[:20]
        answer = await wire.rest()
        assert (answer.body, answer.whole) == ((packed, True) if end is None else (packed[:20], False))


async def ask_openai(gw: Any) -> list[str]:
    """What OpenAI's client gives out of a stream; raises what it raises."""
    texts: list[str] = []
    async with AsyncOpenAI(base_url=f"{gw.url}/v1", api_key="k", max_retries=0) as client:
        stream = await client.chat.completions.create(model="qwen", messages=[], stream=True)
        async for event in stream:
            texts += [choice.delta.content or "" for choice in event.choices]
    return texts


async def test_openais_client_reads_a_stream(behind: Behind) -> None:
    async with behind(sse_reply(EVENTS, gap_s=0.05), keepalive_comment_s=0.01) as (_, gw):
        assert await ask_openai(gw) == ["안녕", "하세요", " 🎬 ", "끝"]


async def test_many_streams_run_side_by_side(behind: Behind, stream: dict[str, Any]) -> None:
    async with behind(sse_reply(EVENTS, gap_s=0.01), concurrency=16) as (_, gw):
        answers = await asyncio.gather(*(gw.ask("/chat", stream) for _ in range(32)))
        assert {(answer.body, answer.whole) for answer in answers} == {(b"".join(WIRED) + DONE, True)}
