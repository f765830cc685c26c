"""SIGTERM: notice, no new connections, what runs may finish, the rest is told, exit 0."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING

import pytest

from dabom.testing import (
    ScriptedUpstream,
    Send,
    Stall,
    WaitFor,
    chat_events,
    chunk,
    head,
    in_turn,
    json_reply,
    sse_event,
    sse_reply,
)

if TYPE_CHECKING:
    from tests.app.conftest import Serve

    from dabom.testing.steps import Step

_BODY = b'{"model":"qwen"}'
_STREAM = b'{"model":"qwen","stream":true}'
_HALF_STREAM: list[Step] = [
    Send(head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])),
    Send(chunk(sse_event(chat_events("a", "b")[0]))),
    Stall(),
]
_HALF_ANSWER: list[Step] = [
    Send(head(200, [("content-type", "application/json"), ("content-length", "50")]) + b'{"a":'),
    Stall(),
]


def _lines(text: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith(b'{"id"')]


async def test_an_idle_gateway_ends_at_once_with_0(serve: Serve) -> None:
    async with ScriptedUpstream() as upstream, serve(VLLM_BASE_URL=upstream.url) as served:
        assert b" 200 " in await served.ask("/healthz")
        served.signal()
        assert await served.ended(5) == 0
        assert b"Traceback" not in served.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_what_runs_is_finished(serve: Serve, number: signal.Signals) -> None:
    gate = asyncio.Event()
    half = [*sse_reply(chat_events("a", "b"))[:2], WaitFor(gate), *sse_reply(chat_events("a", "b"))[2:]]
    script = in_turn(half, [WaitFor(gate), *json_reply({"answer": 42})])
    async with ScriptedUpstream(script) as upstream, serve(VLLM_BASE_URL=upstream.url) as served:
        streaming = asyncio.create_task(served.ask("/chat", _STREAM))
        await upstream.wait_seen(1)
        asking = asyncio.create_task(served.ask("/chat", _BODY))
        await upstream.wait_seen(2)
        served.signal(number)
        await served.refuses()
        assert not streaming.done()
        gate.set()
        assert b"data: [DONE]" in await streaming
        assert (await asking).endswith(b'{"answer":42}')
        assert await served.ended() == 0
        assert b"Traceback" not in served.stderr


async def test_notice_is_given_before_the_port_closes(serve: Serve) -> None:
    async with (
        ScriptedUpstream() as upstream,
        serve(VLLM_BASE_URL=upstream.url, DABOM_DRAIN_NOTICE_S=3) as served,
    ):
        assert b" 200 " in (await served.ask("/readyz"))[:20]
        served.signal()
        async with asyncio.timeout(2.5):
            while b" 503 " not in (await served.ask("/readyz"))[:20]:
                pass
        assert b" 200 " in (await served.ask("/healthz"))[:20]
        assert b" 200 " in (await served.ask("/chat", _BODY))[:20]
        await served.refuses()
        assert await served.ended() == 0


async def test_a_stream_that_does_not_finish_gets_an_error_event(serve: Serve) -> None:
    async with (
        ScriptedUpstream(_HALF_STREAM) as upstream,
        serve(VLLM_BASE_URL=upstream.url, DABOM_DRAIN_TIMEOUT_S=0.3) as served,
    ):
        asking = asyncio.create_task(served.ask("/chat", _STREAM))
        await upstream.wait_seen()
        served.signal()
        text = await asking
        events = [line for line in text.splitlines() if line.startswith(b"data: ")]
        assert json.loads(events[-1][6:])["error"]["code"] == "draining"
        assert b"[DONE]" not in text
        assert not text.endswith(b"0\r\n\r\n")  # not a whole answer
        assert await served.ended() == 0
        await upstream.wait_closed()


async def test_what_has_not_begun_or_is_queued_gets_a_503(serve: Serve) -> None:
    async with (
        ScriptedUpstream([Stall()]) as upstream,
        serve(VLLM_BASE_URL=upstream.url, VLLM_CONCURRENCY=1, DABOM_DRAIN_TIMEOUT_S=0.3) as served,
    ):
        asking = [asyncio.create_task(served.ask("/chat", body)) for body in (_BODY, _BODY, _STREAM)]
        await upstream.wait_seen()
        served.signal()
        for text in await asyncio.gather(*asking):
            assert text.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: " in text.lower()
            assert json.loads(text.partition(b"\r\n\r\n")[2])["error"]["code"] == "draining"
        assert await served.ended() == 0


async def test_half_an_answer_never_ends_as_a_whole_one(serve: Serve) -> None:
    async with (
        ScriptedUpstream(_HALF_ANSWER) as upstream,
        serve(VLLM_BASE_URL=upstream.url, DABOM_DRAIN_TIMEOUT_S=0.3) as served,
    ):
        asking = asyncio.create_task(served.ask("/chat", _BODY))
        await upstream.wait_seen()
        served.signal()
        text = await asking
        assert b"content-length: 50" in text.lower()
        assert text.endswith(b'{"a":')
        assert await served.ended() == 0


async def test_a_batch_tells_of_each_item_that_is_left(serve: Serve) -> None:
    items = [{"id": f"i{n}", "body": {"model": "qwen"}} for n in range(6)]
    script = in_turn(json_reply({"ok": 1}), [Stall()])
    async with (
        ScriptedUpstream(script) as upstream,
        serve(VLLM_BASE_URL=upstream.url, VLLM_CONCURRENCY=2, DABOM_DRAIN_TIMEOUT_S=0.3) as served,
    ):
        asking = asyncio.create_task(served.ask("/chat/batch", json.dumps({"items": items}).encode()))
        await upstream.wait_seen(3)
        served.signal()
        text = await asking
        lines = _lines(text)
        assert sorted(str(line["id"]) for line in lines) == [f"i{n}" for n in range(6)]
        assert [line.get("code") for line in lines].count("draining") == 5
        assert {line["status"] for line in lines if "code" in line} == {503}
        assert text.endswith(b"0\r\n\r\n")
        assert len(upstream.seen) == 3
        assert await served.ended() == 0


async def test_an_ndjson_upload_is_told_too(serve: Serve) -> None:
    async with (
        ScriptedUpstream([Stall()]) as upstream,
        serve(VLLM_BASE_URL=upstream.url, DABOM_DRAIN_TIMEOUT_S=0.3) as served,
    ):
        reader, writer = await served.open()
        writer.write(
            b"POST /chat/batch HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-ndjson\r\n"
            b"transfer-encoding: chunked\r\n\r\n" + chunk(b'{"id":"a","body":{"model":"qwen"}}\n{"id":"b"')
        )
        await upstream.wait_seen()
        served.signal()
        async with asyncio.timeout(10):
            lines = _lines(await reader.read())
        assert [(line["id"], line["code"]) for line in lines] == [("a", "draining")]
        writer.close()
        assert await served.ended() == 0


async def test_an_upload_that_does_not_end_is_refused(serve: Serve) -> None:
    async with (
        ScriptedUpstream() as upstream,
        serve(VLLM_BASE_URL=upstream.url, DABOM_DRAIN_TIMEOUT_S=0.3) as served,
    ):
        reader, writer = await served.open()
        writer.write(b"POST /chat HTTP/1.1\r\nhost: a\r\ncontent-length: 5000\r\n\r\n{")
        await writer.drain()
        assert b" 200 " in await served.ask("/healthz")  # so the head before it has been read
        served.signal()
        async with asyncio.timeout(10):
            assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        writer.close()
        assert await served.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_it_now(serve: Serve, number: signal.Signals) -> None:
    async with (
        ScriptedUpstream([Stall()]) as upstream,
        serve(VLLM_BASE_URL=upstream.url, DABOM_DRAIN_TIMEOUT_S=300) as served,
    ):
        asking = asyncio.create_task(served.ask("/chat", _BODY))
        await upstream.wait_seen()
        served.signal()
        await served.refuses()
        assert not asking.done()
        served.signal(number)
        assert b'"draining"' in await asking
        assert await served.ended(5) == 0


async def test_a_second_signal_cuts_the_notice_short(serve: Serve) -> None:
    async with (
        ScriptedUpstream() as upstream,
        serve(VLLM_BASE_URL=upstream.url, DABOM_DRAIN_NOTICE_S=300) as served,
    ):
        served.signal()
        async with asyncio.timeout(5):
            while b" 503 " not in (await served.ask("/readyz"))[:20]:
                pass
        served.signal()
        assert await served.ended(5) == 0


async def test_connections_that_rest_do_not_hold_it_up(serve: Serve) -> None:
    async with ScriptedUpstream() as upstream, serve(VLLM_BASE_URL=upstream.url) as served:
        reader, writer = await served.open()
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
        await reader.readuntil(b'{"ok":true}')
        _, silent = await served.open()
        served.signal()
        assert await served.ended(5) == 0
        writer.close()
        silent.close()


async def test_the_last_lines_of_the_log_are_written(serve: Serve) -> None:
    async with (
        ScriptedUpstream([Stall()]) as upstream,
        serve(VLLM_BASE_URL=upstream.url, DABOM_DRAIN_TIMEOUT_S=0.2) as served,
    ):
        asking = asyncio.create_task(served.ask("/chat", _BODY))
        await upstream.wait_seen()
        served.signal()
        await asking
        assert await served.ended() == 0
        assert b'"code":"draining"' in served.stderr
