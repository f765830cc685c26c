"""`early_stream`: a stream is opened at once, kept alive with comments, and errors are events."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from openai import APIError, AsyncOpenAI

from dabom.testing import (
    Close,
    Stall,
    WaitFor,
    chat_events,
    error_reply,
    raw_reply,
    refusing_upstream,
    sse_reply,
)

if TYPE_CHECKING:
    from tests.gateway.conftest import Behind, Run

    from dabom.testing import Step

JSON = [("content-type", "application/json")]
EVENTS = chat_events("안", "녕")


def events_of(body: bytes) -> list[dict[str, Any]]:
    """The events of a stream that has no comment lines left; each must be JSON."""
    blocks = body.replace(b": keep-alive\n\n", b"").decode().split("\n\n")
    assert blocks.pop() == ""
    return [msgspec.json.decode(block.removeprefix("data: ")) for block in blocks]


async def test_an_early_stream_speaks_before_the_upstream(behind: Behind, stream: dict[str, Any]) -> None:
    gate = asyncio.Event()
    script = [WaitFor(gate), *sse_reply(EVENTS)]
    async with (
        behind(script, early_stream=True, keepalive_comment_s=0.05) as (upstream, gw),
        gw.wire() as wire,
    ):
        await wire.request("/chat", msgspec.json.encode(stream), headers=[("x-request-id", "mine")])
        assert (await wire.head()).status == 200
        assert wire.answer.header("content-type") == "text/event-stream; charset=utf-8"
        assert wire.answer.header("x-request-id") == "mine"
        await wire.until(b": keep-alive\n\n: keep-alive\n\n: keep-alive\n\n")
        await upstream.wait_seen(1)
        gate.set()
        answer = await wire.rest()
        expected = b"".join(b"data: %b\n\n" % msgspec.json.encode(event) for event in EVENTS)
        assert answer.body.replace(b": keep-alive\n\n", b"") == expected + b"data: [DONE]\n\n"
        assert answer.whole


async def test_an_early_stream_speaks_while_it_is_queued(behind: Behind, stream: dict[str, Any]) -> None:
    gate = asyncio.Event()
    script = [WaitFor(gate), *sse_reply(EVENTS)]
    async with (
        behind(script, early_stream=True, concurrency=1, keepalive_comment_s=0.05) as (upstream, gw),
        gw.wire() as first,
        gw.wire() as second,
    ):
        for wire in (first, second):
            await wire.request("/chat", msgspec.json.encode(stream))
            await wire.until(b": keep-alive\n\n")
        await gw.until(lambda: gw.permits.waiting == 1)
        await second.until(b": keep-alive\n\n: keep-alive\n\n")
        assert len(upstream.seen) == 1
        gate.set()
        for wire in (first, second):
            answer = await wire.rest()
            assert answer.whole
            assert answer.body.endswith(b"data: [DONE]\n\n")


EARLY_FAULTS: dict[str, tuple[list[Step], dict[str, Any], str]] = {
    "broken": ([Close()], {}, "upstream_broken"),
    "no first byte": ([Stall()], {"first_byte_timeout_s": 0.2}, "first_byte_timeout"),
    "total": ([Stall()], {"total_timeout_s": 0.2}, "total_timeout"),
}


@pytest.mark.parametrize("how", EARLY_FAULTS)
async def test_faults_of_an_early_stream_are_events(behind: Behind, stream: dict[str, Any], how: str) -> None:
    script, clocks, code = EARLY_FAULTS[how]
    async with behind(script, early_stream=True, **clocks) as (_, gw):
        answer = await gw.ask("/chat", stream, headers=[("x-request-id", "early")])
        assert (answer.status, answer.whole) == (200, False)
        (event,) = events_of(answer.body)
        assert event["error"]["code"] == code
        assert b"[DONE]" not in answer.body
        assert (await gw.line("early"))["code"] == code


async def test_a_full_queue_is_an_event_of_an_early_stream(behind: Behind, stream: dict[str, Any]) -> None:
    gate = asyncio.Event()
    script = [WaitFor(gate), *sse_reply(EVENTS)]
    async with (
        behind(script, early_stream=True, concurrency=1, acquire_timeout_s=0.1) as (upstream, gw),
        asyncio.TaskGroup() as group,
    ):
        running = group.create_task(gw.ask("/chat", stream))
        await upstream.wait_seen(1)
        answer = await gw.ask("/chat", stream)
        assert [event["error"]["code"] for event in events_of(answer.body)] == ["queue_timeout"]
        assert not answer.whole
        gate.set()
        assert (await running).whole


async def test_an_unreachable_upstream_is_an_event_of_an_early_stream(
    running_gateway: Run, stream: dict[str, Any]
) -> None:
    with refusing_upstream() as url:
        async with running_gateway(url, early_stream=True) as gw:
            answer = await gw.ask("/chat", stream)
            assert [event["error"]["code"] for event in events_of(answer.body)] == ["upstream_unreachable"]


@pytest.mark.parametrize(
    "text", [b'{"error": {"message": "no",\r\n "code": 400}}', b"<html>\nno\n</html>", b""]
)
async def test_an_upstreams_refusal_is_an_event_of_an_early_stream(
    behind: Behind, stream: dict[str, Any], text: bytes
) -> None:
    async with behind(raw_reply(text, status=400, headers=JSON), early_stream=True) as (_, gw):
        answer = await gw.ask("/chat", stream)
        assert (answer.status, answer.whole) == (200, False)
        (event,) = events_of(answer.body)
        assert event["error"]
        if text.startswith(b"{"):
            assert event["error"] == {"message": "no", "code": 400}


async def test_openais_client_raises_for_an_early_refusal(behind: Behind) -> None:
    async with (
        behind(error_reply(400, "image is broken"), early_stream=True) as (_, gw),
        AsyncOpenAI(base_url=f"{gw.url}/v1", api_key="k", max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(model="qwen", messages=[], stream=True)
        with pytest.raises(APIError, match="image is broken"):
            async for _ in stream:
                pass


async def test_early_stream_leaves_other_requests_alone(behind: Behind, chat: dict[str, Any]) -> None:
    async with behind(error_reply(400, "no"), early_stream=True) as (_, gw):
        answer = await gw.ask("/chat", chat)
        assert (answer.status, answer.error["message"], answer.whole) == (400, "no", True)
        malformed = await gw.ask("/chat", b'{"stream": true')
        assert (malformed.status, malformed.error["code"]) == (400, "invalid_json")
