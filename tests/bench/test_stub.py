from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from bench.gateway.load import build_body, join_chunks
from bench.gateway.stub import ANSWER, Pace, frame, listen, whole_stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
_STREAM = b'{"stream": true}'


@asynccontextmanager
async def _connected(pace: Pace) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    server = await listen("127.0.0.1", 0, pace)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    if b"chunked" in head:
        framed = await reader.readuntil(b"0\r\n\r\n")
        payload = join_chunks(framed)
        assert payload is not None
        return payload
    return await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))


def _counted(body: bytes) -> bytes:
    return _POST + b"content-length: %d\r\n\r\n%b" % (len(body), body)


def _chunked(body: bytes, step: int) -> bytes:
    pieces = b"".join(frame(body[at : at + step]) for at in range(0, len(body), step))
    return _POST + b"Transfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"


@pytest.mark.parametrize("latency_s", [0.0, 0.01])
async def test_pipelined_requests_are_answered_in_order(latency_s: float) -> None:
    async with _connected(Pace(latency_s, events=3)) as (reader, writer):
        writer.write(
            _counted(b"{}") + _counted(_STREAM) + _chunked(_STREAM, 3) + _counted(b"") + _chunked(b"{}", 1)
        )
        got = [await _answer(reader) for _ in range(5)]
    assert got == [ANSWER, whole_stream(3), whole_stream(3), ANSWER, ANSWER]


@pytest.mark.parametrize("step", [1, 7, 1000])
async def test_requests_may_be_cut_anywhere(step: int) -> None:
    wire = _chunked(_STREAM, 5) + _counted(_STREAM) + _chunked(b'{"text":"0\r\n\r\n"}', 4)
    async with _connected(Pace(events=2)) as (reader, writer):
        for at in range(0, len(wire), step):
            writer.write(wire[at : at + step])
            await writer.drain()
            await asyncio.sleep(0)
        got = [await _answer(reader) for _ in range(3)]
    assert got == [whole_stream(2), whole_stream(2), ANSWER]


async def test_stats_tell_what_arrived() -> None:
    body = build_body("0.3", stream=True)
    async with _connected(Pace(events=1)) as (reader, writer):
        writer.write(b"GET /arm HTTP/1.1\r\n\r\n" + _chunked(body, 100_000))
        await _answer(reader)
        assert await _answer(reader) == whole_stream(1)
        writer.write(_counted(b"{}") + b"GET /stats HTTP/1.1\r\n\r\n")
        await _answer(reader)
        stats = json.loads(await _answer(reader))
    assert stats["requests"] == 2
    assert stats["body_bytes"] == len(body) + 2
    assert stats["last_sha256"] == hashlib.sha256(body).hexdigest()


async def test_models_and_health() -> None:
    async with _connected(Pace()) as (reader, writer):
        writer.write(b"GET /v1/models HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\n\r\n")
        assert json.loads(await _answer(reader))["data"][0]["id"] == "qwen"
        assert json.loads(await _answer(reader)) == {"ok": True}
