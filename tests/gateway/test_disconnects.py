"""Clients that leave, in every phase: permit and upstream connection are free at once."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from dabom.testing import Send, Stall, chat_events, chunk, head, sse_event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.gateway.conftest import Behind, RunningGateway, Wire

    from dabom.testing import ScriptedUpstream
    from dabom.testing.seen import Seen
    from dabom.testing.steps import Step

_JSON = [("content-type", "application/json")]
_NDJSON = [("content-type", "application/x-ndjson"), ("transfer-encoding", "chunked")]
_FREE_WITHIN_S = 0.5
_HALF_STREAM: list[Step] = [
    Send(head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])),
    Send(chunk(sse_event(chat_events("a", "b")[0]))),
    Stall(),
]
_HALF_ANSWER: list[Step] = [
    Send(head(200, [("content-type", "application/json"), ("content-length", "5000")]) + b'{"a":'),
    Stall(),
]


def _large_body(size: int = 3_000_000) -> bytes:
    return json.dumps({"model": "qwen", "messages": [], "x": "A" * size}).encode()


def _batch(count: int) -> bytes:
    items = [{"id": n, "body": {"model": "qwen", "messages": []}} for n in range(count)]
    return json.dumps({"items": items}).encode()


async def _expect_free(
    gw: RunningGateway, upstream: ScriptedUpstream, leave: Callable[[], None], permits: int = 0
) -> None:
    """From the moment of leaving, permits and upstream connections are free within half a second."""
    left = time.monotonic()
    leave()
    await gw.until(lambda: gw.permits.held == permits and gw.permits.waiting == 0)
    await gw.until(lambda: gw.gateway.running == permits)
    await gw.until(lambda: upstream.busy == permits)
    assert time.monotonic() - left < _FREE_WITHIN_S


async def _gone(gw: RunningGateway) -> dict[str, Any]:
    """The log says that the client left."""
    async with asyncio.timeout(5):
        while True:
            gw.log.news.clear()
            for line in gw.log.lines:
                if line.get("code") == "client_gone":
                    return line
            await gw.log.news.wait()


@pytest.fixture(params=["fin", "rst"])
def how(request: pytest.FixtureRequest) -> Callable[[Wire], Callable[[], None]]:
    """Two ways to leave."""
    return (lambda wire: wire.leave) if request.param == "fin" else (lambda wire: wire.reset)


async def test_while_uploading_slowly(behind: Behind, how: Callable[[Wire], Callable[[], None]]) -> None:
    async with behind([Stall()]) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", b'{"model":', headers=_JSON, length=50_000)
        await gw.until(lambda: gw.gateway.running == 1)
        assert gw.permits.held == 0
        await _expect_free(gw, upstream, how(wire))
        assert not upstream.seen
        assert (await _gone(gw))["status"] == 499


async def test_while_queued(behind: Behind, how: Callable[[Wire], Callable[[], None]]) -> None:
    async with behind([Stall()], concurrency=1) as (upstream, gw), gw.wire() as first, gw.wire() as wire:
        await first.request("/chat", b'{"model":"qwen"}', headers=_JSON)
        await upstream.wait_seen()
        await wire.request("/chat", b'{"model":"qwen"}', headers=_JSON)
        await gw.until(lambda: gw.permits.waiting == 1)
        await _expect_free(gw, upstream, how(wire), permits=1)
        assert len(upstream.seen) == 1


@pytest.mark.parametrize("size", [10, 3_000_000])
@pytest.mark.parametrize("stream", [True, False])
async def test_before_the_first_byte(
    behind: Behind, how: Callable[[Wire], Callable[[], None]], stream: bool, size: int
) -> None:
    body = json.dumps({"model": "qwen", "stream": stream, "x": "A" * size}).encode()
    async with behind([Stall()]) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", body, headers=_JSON)
        await upstream.wait_seen(complete=True)
        assert gw.permits.held == 1
        await _expect_free(gw, upstream, how(wire))
        assert upstream.seen[0].disconnected_at is not None


@pytest.mark.parametrize("size", [10, 3_000_000])
@pytest.mark.parametrize("script", [_HALF_STREAM, _HALF_ANSWER], ids=["stream", "answer"])
async def test_in_the_middle_of_the_answer(
    behind: Behind, how: Callable[[Wire], Callable[[], None]], script: Sequence[Step], size: int
) -> None:
    body = json.dumps({"model": "qwen", "stream": script is _HALF_STREAM, "x": "A" * size}).encode()
    async with behind(script) as (upstream, gw), gw.wire() as wire:
        await wire.request("/v1/chat/completions", body, headers=_JSON)
        await wire.until(b"a")
        await _expect_free(gw, upstream, how(wire))
        assert (await _gone(gw))["path"] == "/v1/chat/completions"


async def test_an_early_stream(behind: Behind, how: Callable[[Wire], Callable[[], None]]) -> None:
    async with behind([Stall()], early_stream=True) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", b'{"model":"qwen","stream":true}', headers=_JSON)
        await wire.until(b"keep-alive")
        await upstream.wait_seen()
        await _expect_free(gw, upstream, how(wire))


async def test_with_more_requests_in_the_pipeline(
    behind: Behind, how: Callable[[Wire], Callable[[], None]]
) -> None:
    body = b'{"model":"qwen"}'
    async with behind([Stall()]) as (upstream, gw), gw.wire() as wire:
        head = b"POST /chat HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body)
        await wire.send((head + body) * 3)
        await upstream.wait_seen()
        await _expect_free(gw, upstream, how(wire))
        assert len(upstream.seen) == 1


async def test_inside_a_json_batch(behind: Behind, how: Callable[[Wire], Callable[[], None]]) -> None:
    async with behind([Stall()], concurrency=2) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat/batch", _batch(10), headers=_JSON)
        await upstream.wait_seen(2)
        await _expect_free(gw, upstream, how(wire))
        assert len(upstream.seen) == 2  # the others were never sent


async def test_inside_an_ndjson_upload(behind: Behind, how: Callable[[Wire], Callable[[], None]]) -> None:
    line = b'{"id":1,"body":{"model":"qwen"}}\n'
    async with behind([Stall()], concurrency=2) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat/batch", chunk(line) + chunk(line[:10]), headers=_NDJSON)
        await upstream.wait_seen(1)
        await _expect_free(gw, upstream, how(wire))


async def test_after_an_ndjson_upload(behind: Behind, how: Callable[[Wire], Callable[[], None]]) -> None:
    line = b'{"id":1,"body":{"model":"qwen"}}\n'
    async with behind([Stall()], concurrency=1) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat/batch", chunk(line) + chunk(b""), headers=_NDJSON)
        await upstream.wait_seen(1)
        await _expect_free(gw, upstream, how(wire))


async def test_an_ndjson_upload_that_is_pushed_back(
    behind: Behind, how: Callable[[Wire], Callable[[], None]]
) -> None:
    line = b'{"id":%d,"body":{"model":"qwen","x":"' + b"A" * 5000 + b'"}}\n'
    lines = b"".join(chunk(line % n) for n in range(160))  # more than is read, no more than the kernel takes
    async with behind([Stall()], max_ndjson_bytes_in_flight=20_000) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat/batch", lines, headers=_NDJSON)
        await upstream.wait_seen(3)
        await _expect_free(gw, upstream, how(wire))


async def test_an_ndjson_upload_that_is_pushed_back_on_the_client_itself(behind: Behind) -> None:
    line = b'{"id":%d,"body":{"model":"qwen","x":"' + b"A" * 5000 + b'"}}\n'
    lines = b"".join(chunk(line % n) for n in range(4000))
    async with behind([Stall()], max_ndjson_bytes_in_flight=20_000) as (upstream, gw), gw.wire() as wire:
        sending = asyncio.create_task(wire.request("/chat/batch", lines, headers=_NDJSON))
        await upstream.wait_seen(3)
        await _expect_free(gw, upstream, wire.reset)
        await asyncio.wait([sending])
        sending.exception()


@pytest.mark.parametrize("megabytes", [3, 30])
async def test_while_the_upstream_does_not_take_the_body(
    behind: Behind, megabytes: int, how: Callable[[Wire], Callable[[], None]]
) -> None:
    body = _large_body(megabytes * 1_000_000)
    async with behind([Stall()], upstream={"read_body": False}) as (upstream, gw), gw.wire() as wire:
        sending = asyncio.create_task(wire.request("/chat", body, headers=_JSON))
        await upstream.wait_seen()
        await _expect_free(gw, upstream, how(wire))
        await asyncio.wait([sending])
        sending.exception()


async def test_a_client_that_stops_reading_its_stream_is_cut_by_the_idle_clock(behind: Behind) -> None:
    flood: list[Step] = [
        _HALF_STREAM[0],
        *(Send(chunk(sse_event({"x": "A" * 60_000}))) for _ in range(400)),
        Stall(),
    ]
    async with behind(flood, idle_timeout_s=0.4) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", b'{"model":"qwen","stream":true}', headers=_JSON)
        await wire.head()
        await gw.until(lambda: gw.gateway.running == 0)
        await gw.until(lambda: gw.permits.held == 0)
        await upstream.wait_idle()
        line = await _gone(gw)
        assert line["status"] == 200
        await gw.until(lambda: _client_sockets(gw.port) == 0)


async def test_a_client_that_stops_reading_its_batch_is_cut_by_the_idle_clock(behind: Behind) -> None:
    body = json.dumps({"text": "A" * 1_000_000}).encode()
    reply: list[Step] = [
        Send(head(200, [("content-type", "application/json"), ("content-length", str(len(body)))]) + body)
    ]
    async with behind(reply, idle_timeout_s=0.4) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat/batch", _batch(30), headers=_JSON)
        await wire.head()
        await gw.until(lambda: gw.gateway.running == 0)
        await upstream.wait_idle()
        await _gone(gw)
        await gw.until(lambda: _client_sockets(gw.port) == 0)


async def test_a_client_that_stops_uploading_frees_everything(behind: Behind) -> None:
    body = _large_body()
    async with behind(upload_idle_timeout_s=0.4) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", body[:-1], headers=_JSON, length=len(body))
        await gw.until(lambda: gw.gateway.running == 1)
        await gw.until(lambda: gw.gateway.running == 0 and gw.permits.held == 0)
        assert (await wire.rest()).status == 408
        assert not upstream.seen
        await gw.until(lambda: _client_sockets(gw.port) == 0)


def _client_sockets(port: int) -> int:
    """Connections that the gateway has with clients."""
    return sum(
        c.laddr.port == port and c.status == "ESTABLISHED" for c in psutil.Process().net_connections("tcp")
    )


def _script(seen: Seen) -> Sequence[Step]:
    """What comes, by the request: at once, never, half."""
    kind = seen.header("x-kind")
    if kind == "silent":
        return [Stall()]
    if kind == "half":
        return _HALF_STREAM
    answer = b'{"ok":1}'
    return [Send(head(200, [("content-type", "application/json"), ("content-length", "8")]) + answer)]


async def _disconnect_somewhere(gw: RunningGateway, chance: random.Random, large: bytes) -> None:
    kind = [("x-kind", chance.choice(("silent", "half", "quick")))]
    path, body, headers = chance.choice(
        (
            ("/chat", b'{"model":"qwen"}', _JSON),
            ("/v1/chat/completions", b'{"model":"qwen","stream":true}', _JSON),
            ("/chat/batch", _batch(3), _JSON),
            ("/chat/batch", chunk(b'{"id":1,"body":{"model":"qwen"}}\n') * 2, _NDJSON),
            ("/chat", large, _JSON),
        )
    )
    sent = body if chance.random() < 0.7 else body[: chance.randrange(len(body))]
    pause, leave_hard = chance.choice((0, 0, 0.002, 0.02)), chance.random() < 0.5
    async with gw.wire() as wire:
        try:
            async with asyncio.timeout(pause + 0.05):
                length = None if headers is _NDJSON else len(body)
                await wire.request(path, sent, headers=[*headers, *kind], length=length)
                await asyncio.sleep(pause)
        except TimeoutError:
            pass
        (wire.reset if leave_hard else wire.leave)()


async def test_after_a_thousand_random_disconnects_everything_is_as_it_was(behind: Behind) -> None:
    chance = random.Random(20_261)
    large = _large_body(200_000)
    async with behind(_script, concurrency=4) as (upstream, gw):
        assert (await gw.ask("/chat", {"model": "qwen"})).status == 200
        await gw.until(lambda: gw.gateway.running == 0)
        tasks, sockets = len(asyncio.all_tasks()), len(psutil.Process().net_connections("tcp"))
        room = asyncio.Semaphore(24)

        async def one() -> None:
            async with room:
                await _disconnect_somewhere(gw, chance, large)

        await asyncio.gather(*(one() for _ in range(1000)))
        await gw.until(lambda: gw.gateway.running == 0)
        assert (gw.permits.held, gw.permits.waiting) == (0, 0)
        await upstream.wait_idle()
        assert (await gw.ask("/chat", {"model": "qwen"})).status == 200
        # connections to the upstream that rest are the pool; they go after 4 s
        await upstream.wait_closed(within_s=15)
        await gw.until(lambda: len(psutil.Process().net_connections("tcp")) <= sockets)
        await gw.until(lambda: len(asyncio.all_tasks()) <= tasks)
