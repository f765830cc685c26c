"""A body on its way: fast ones flow on, slow ones are received first, broken ones never arrive whole."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from dabom.testing import ScriptedUpstream, chat_answer, json_reply, refusing_upstream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway.conftest import Behind, Run, Wire

_JSON = [("content-type", "application/json")]
_CHUNKED = [*_JSON, ("transfer-encoding", "chunked")]


def _body(size: int = 2_000_000) -> bytes:
    uri = "data:video/mp4;base64," + "QUJD" * (size // 4)
    part = {"type": "video_url", "video_url": {"url": uri}}
    return json.dumps({"model": "qwen", "messages": [{"role": "user", "content": [part]}]}).encode()


def _chunks(body: bytes, size: int = 60_000) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        piece = body[start : start + size]
        yield b"%x\r\n%b\r\n" % (len(piece), piece)


async def _send_all_but_the_last(wire: Wire, body: bytes, held_back: int = 1) -> None:
    await wire.request("/chat", body[:-held_back], headers=_JSON, length=len(body))


async def _wait_for_bytes(upstream: ScriptedUpstream, count: int) -> None:
    async with asyncio.timeout(5):
        while not upstream.seen or upstream.seen[0].body_bytes < count:  # noqa: ASYNC110 - no event per piece
            await asyncio.sleep(0.002)


async def test_a_large_body_reaches_the_upstream_before_the_client_has_sent_its_last(behind: Behind) -> None:
    body = _body()
    async with behind() as (upstream, gw), gw.wire() as wire:
        sending = asyncio.create_task(_send_all_but_the_last(wire, body))
        await _wait_for_bytes(upstream, 500_000)
        await sending
        await wire.send(body[-1:])
        answer = await wire.rest()
        assert answer.status == 200
        assert [seen.sha256 for seen in upstream.seen if seen.complete] == [hashlib.sha256(body).hexdigest()]


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize(
    "end", [b"", b"}", b"} x", b"\xff", b'"'], ids=["cut", "twice", "text", "bytes", "open"]
)
async def test_malformed_json_never_reaches_the_upstream_whole(
    behind: Behind, framing: str, end: bytes
) -> None:
    body = _body()
    body = body[:-1] if end == b"" else body + end
    async with behind() as (upstream, gw), gw.wire() as wire:
        if framing == "length":
            await wire.request("/chat", body, headers=_JSON)
        else:
            await wire.request("/chat", b"".join(_chunks(body)) + b"0\r\n\r\n", headers=_CHUNKED)
        answer = await wire.rest()
        assert (answer.status, answer.error["code"]) == (400, "invalid_json")
        await upstream.wait_idle()
        assert not any(seen.complete for seen in upstream.seen)
        assert not any(seen.sha256 == hashlib.sha256(body).hexdigest() for seen in upstream.seen)


async def test_a_wrong_byte_in_the_middle_is_told_before_the_rest_has_come(behind: Behind) -> None:
    body = _body()
    body = body[:1_000_000] + b"\n" + body[1_000_001:]
    async with behind() as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", body[:1_100_000], headers=_JSON, length=len(body))
        answer = await wire.head()
        assert answer.status == 400
        await upstream.wait_idle()
        assert not any(seen.complete for seen in upstream.seen)


async def test_an_oversize_chunked_body_never_reaches_the_upstream_whole(behind: Behind) -> None:
    body = _body()
    async with behind(max_body_bytes=1_000_000) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", b"".join(_chunks(body)) + b"0\r\n\r\n", headers=_CHUNKED)
        answer = await wire.rest()
        assert (answer.status, answer.error["code"]) == (413, "body_too_large")
        await upstream.wait_idle()
        assert not any(seen.complete for seen in upstream.seen)


async def test_a_slow_upload_holds_no_permit_and_is_answered(behind: Behind) -> None:
    body = _body(300_000)
    async with behind(concurrency=1) as (upstream, gw), gw.wire() as slow:
        await slow.request("/chat", body[:200], headers=_JSON, length=len(body))
        await gw.until(lambda: gw.gateway.running == 1)
        assert gw.permits.held == 0
        for _ in range(3):
            assert (await gw.ask("/chat", {"model": "qwen", "messages": []})).status == 200
        await slow.send(body[200:])
        answer = await slow.rest()
        assert answer.status == 200
        assert upstream.seen[-1].sha256 == hashlib.sha256(body).hexdigest()


async def test_an_upload_that_stalls_while_it_flows_gives_its_permit_back_and_is_answered(
    behind: Behind,
) -> None:
    body = _body()
    async with behind(concurrency=1) as (upstream, gw), gw.wire() as slow:
        await slow.request("/chat", body[:1_500_000], headers=_JSON, length=len(body))
        await gw.until(lambda: gw.permits.held == 1)  # it flows
        await gw.until(lambda: gw.permits.held == 0)  # it has been given up
        other = await gw.ask("/chat", {"model": "qwen", "messages": []})
        assert other.status == 200
        await slow.send(body[1_500_000:])
        answer = await slow.rest()
        assert answer.status == 200
        whole = [seen.sha256 for seen in upstream.seen if seen.complete]
        assert whole.count(hashlib.sha256(body).hexdigest()) == 1
        assert len(whole) == 2  # the first attempt has been dropped without an end


async def test_an_idle_upload_is_cut(behind: Behind) -> None:
    async with behind(upload_idle_timeout_s=0.2) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", b'{"model":', headers=_JSON, length=5000)
        answer = await wire.rest()
        assert (answer.status, answer.error["code"]) == (408, "upload_timeout")
        assert await wire.closed() == b""
        assert not upstream.seen


async def test_an_idle_upload_that_had_begun_to_flow_is_cut(behind: Behind) -> None:
    body = _body()
    async with behind(upload_idle_timeout_s=0.4) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", body[:1_500_000], headers=_JSON, length=len(body))
        answer = await wire.rest()
        assert (answer.status, answer.error["code"]) == (408, "upload_timeout")
        await upstream.wait_idle()
        assert not any(seen.complete for seen in upstream.seen)


async def test_a_drop_by_drop_upload_is_not_idle(behind: Behind) -> None:
    body = json.dumps({"model": "qwen", "messages": []}).encode()
    async with behind(upload_idle_timeout_s=2) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", body[:1], headers=_JSON, length=len(body))
        for at in range(1, len(body)):
            await asyncio.sleep(0.005)
            await wire.send(body[at : at + 1])
        assert (await wire.rest()).status == 200
        assert upstream.seen[0].body == body


async def test_an_answer_to_the_head_of_a_flowing_body_is_passed_on(behind: Behind) -> None:
    body = _body(6_000_000)
    early = json_reply({"error": {"message": "too long"}}, 400)
    options = {"before_body": early, "read_body": False}
    async with behind(upstream=options) as (_, gw), gw.wire() as wire:
        sending = asyncio.create_task(_send_all_but_the_last(wire, body))
        answer = await wire.rest()
        await asyncio.wait([sending])
        sending.exception()
        assert answer.status == 400
        assert answer.error["message"] == "too long"
    assert len(body) > 6_000_000


async def test_an_upstream_that_cannot_be_reached_is_told_while_the_body_flows(running_gateway: Run) -> None:
    body = _body()
    with refusing_upstream() as url:
        async with running_gateway(url) as gw, gw.wire() as wire:
            await wire.request("/chat", body, headers=_JSON)
            answer = await wire.rest()
            assert (answer.status, answer.error["code"]) == (502, "upstream_unreachable")


async def test_a_body_waits_for_a_permit_without_flowing(behind: Behind) -> None:
    body = _body()
    async with behind(concurrency=1, upstream={"models": None}) as (upstream, gw):
        await gw.permits.acquire(1)
        try:
            asking = asyncio.create_task(gw.ask("/chat", body))
            await gw.until(lambda: gw.permits.waiting == 1)
            assert not upstream.seen
        finally:
            gw.permits.release()
        answer = await asking
        assert answer.json() == chat_answer()
        assert upstream.seen[0].sha256 == hashlib.sha256(body).hexdigest()
