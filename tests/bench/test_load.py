from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from bench.gateway.load import Plan, WrongAnswer, build_body, join_chunks, measure
from bench.gateway.stub import ANSWER, EVENT, Pace, answer_head, frame, listen, whole_stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    Serve = Callable[[bytes], AbstractAsyncContextManager[str]]

_SSE = answer_head(None, b"text/event-stream")
_END = b"0\r\n\r\n"


def _plan(url: str, **more: Any) -> Plan:
    return Plan(url, seconds=0.15, warm_s=0.02, silent_s=0.5, events=4, **more)


@pytest.mark.parametrize(("kind", "stream"), [("text", False), ("0.2", False), ("text", True)])
async def test_right_answers_are_counted(kind: str, stream: bool) -> None:
    server = await listen("127.0.0.1", 0, Pace(events=4))
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    plan = _plan(f"{base}/v1/chat/completions", kind=kind, stream=stream, clients=3, stub=base)
    found = await measure(plan)
    server.close()
    assert found["errors"] == 0
    assert found["first_errors"] == []
    assert found["requests"] > 3
    assert found["body_intact"] is True
    assert found["body_bytes"] == len(build_body(kind, stream))
    assert 0 < found["first_byte_p50_ms"] <= found["p50_ms"] <= found["p99_ms"]
    assert found["events_per_s"] == pytest.approx(4 * found["requests_per_s"] if stream else 0, rel=0.01)


_WRONG = {
    "another status": (b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", False, "http/1.1 503 busy"),
    "another body": (answer_head(len(ANSWER), b"application/json") + ANSWER[:-1] + b" ", False, "is not the"),
    "another length": (answer_head(2, b"application/json") + b"{}", False, "body of 2 bytes"),
    "too long": (answer_head(2, b"application/json") + b"{}}", False, "after the end"),
    "no length": (b"HTTP/1.1 200 OK\r\n\r\n{}", False, "without a length"),
    "no [DONE]": (_SSE + frame(EVENT * 4) + _END, True, "without [DONE]"),
    "an event too few": (_SSE + frame(whole_stream(3)) + _END, True, "3 events, not 4"),
    "another event": (_SSE + frame(whole_stream(4).replace(b"tok", b"tik", 1)) + _END, True, "did not send"),
    "[DONE] not last": (_SSE + frame(whole_stream(4) + EVENT) + _END, True, "without [DONE]"),
    "no last chunk": (_SSE + frame(whole_stream(4)), True, "no whole answer within"),
    "broken framing": (_SSE + b"zz\r\n" + whole_stream(4) + _END, True, "broken chunk framing"),
}


@pytest.mark.parametrize("name", _WRONG)
async def test_a_wrong_answer_is_an_error(name: str, answering: Serve) -> None:
    answer, stream, words = _WRONG[name]
    async with answering(answer) as url:
        found = await measure(Plan(url, seconds=0.3, warm_s=0, silent_s=0.1, events=4, stream=stream))
    assert found["requests"] == 0
    assert found["errors"] + found["warm_errors"] > 0
    assert words in found["first_errors"][0]


async def test_a_lost_connection_is_an_error() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer_head(len(ANSWER), b"application/json") + ANSWER[:50])
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        found = await measure(_plan(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"))
    assert found["requests"] == 0
    assert found["first_errors"] == ["connection lost before the answer was whole"]


async def test_nobody_listening_is_an_error() -> None:
    found = await measure(_plan("http://127.0.0.1:9/"))
    assert found["requests"] == 0
    assert found["errors"] > 0
    assert found["first_errors"][0].startswith("connect:")


async def test_chunks_may_be_cut_and_joined_differently(answering: Serve) -> None:
    stream = whole_stream(4)
    comment = b": waiting\n\n"
    async with answering(_SSE + frame(stream[:100]) + frame(comment + stream[100:]) + _END) as url:
        found = await measure(_plan(url, stream=True))
    assert "did not send" in found["first_errors"][0]
    at = len(EVENT)
    async with answering(_SSE + frame(stream[:at]) + frame(comment + stream[at:]) + _END) as url:
        found = await measure(_plan(url, stream=True))
    assert found["errors"] == 0
    assert found["requests"] > 0


async def test_loose_accepts_the_same_answer_written_again(answering: Serve) -> None:
    again = json.dumps(json.loads(ANSWER), indent=1).encode()
    async with answering(answer_head(len(again), b"application/json") + again) as url:
        assert (await measure(_plan(url)))["requests"] == 0
        assert (await measure(_plan(url, loose=True)))["requests"] > 0


def test_join_chunks() -> None:
    assert join_chunks(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n") == b"abcde"
    assert join_chunks(b"3\r\nabc\r\n0\r\n") is None
    with pytest.raises(WrongAnswer):
        join_chunks(b"q\r\nabc\r\n0\r\n\r\n")
