"""A body on its way: it is received first, a slow one holds no permit, a broken one reaches no upstream."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from dabom.testing import chat_answer, json_reply, refusing_upstream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway.conftest import Behind, Run

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


async def test_a_large_body_is_whole_at_the_upstream(behind: Behind) -> None:
    body = _body(20_000_000)
    async with behind() as (upstream, gw):
        assert (await gw.ask("/chat", body)).status == 200
        assert [seen.sha256 for seen in upstream.seen] == [hashlib.sha256(body).hexdigest()]


async def test_bodies_that_are_read_at_the_same_time_do_not_mix(behind: Behind) -> None:
    bodies = [_body(size) for size in (300_000, 1_200_000, 2_500_000, 4_000_000)] * 3
    async with behind(concurrency=4) as (upstream, gw):
        answers = await asyncio.gather(*(gw.ask("/chat", body) for body in bodies))
        assert {answer.status for answer in answers} == {200}
        found = sorted(seen.sha256 for seen in upstream.seen)
        assert found == sorted(hashlib.sha256(body).hexdigest() for body in bodies)


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
        assert not upstream.seen


async def test_a_wrong_byte_in_the_middle_is_told_before_the_rest_has_come(behind: Behind) -> None:
    body = _body()
    body = body[:1_000_000] + b"\n" + body[1_000_001:]
    async with behind() as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", body[:1_100_000], headers=_JSON, length=len(body))
        answer = await wire.head()
        assert answer.status == 400
        assert not upstream.seen


async def test_an_oversize_chunked_body_never_reaches_the_upstream_whole(behind: Behind) -> None:
    body = _body()
    async with behind(max_body_bytes=1_000_000) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", b"".join(_chunks(body)) + b"0\r\n\r\n", headers=_CHUNKED)
        answer = await wire.rest()
        assert (answer.status, answer.error["code"]) == (413, "body_too_large")
        assert not upstream.seen


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


async def test_a_large_upload_that_stalls_holds_no_permit_and_is_answered(behind: Behind) -> None:
    body = _body()
    async with behind(concurrency=1) as (upstream, gw), gw.wire() as slow:
        await slow.request("/chat", body[:1_500_000], headers=_JSON, length=len(body))
        await gw.until(lambda: gw.gateway.running == 1)
        other = await gw.ask("/chat", {"model": "qwen", "messages": []})
        assert (other.status, len(upstream.seen)) == (200, 1)
        await slow.send(body[1_500_000:])
        answer = await slow.rest()
        assert answer.status == 200
        assert upstream.seen[-1].sha256 == hashlib.sha256(body).hexdigest()


async def test_an_idle_upload_is_cut(behind: Behind) -> None:
    async with behind(upload_idle_timeout_s=0.2) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", b'{"model":', headers=_JSON, length=5000)
        answer = await wire.rest()
        assert (answer.status, answer.error["code"]) == (408, "upload_timeout")
        assert await wire.closed() == b""
        assert not upstream.seen


async def test_an_idle_upload_of_which_much_has_come_is_cut(behind: Behind) -> None:
    body = _body()
    async with behind(upload_idle_timeout_s=0.4) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", body[:1_500_000], headers=_JSON, length=len(body))
        answer = await wire.rest()
        assert (answer.status, answer.error["code"]) == (408, "upload_timeout")
        assert not upstream.seen


async def test_a_drop_by_drop_upload_is_not_idle(behind: Behind) -> None:
    body = json.dumps({"model": "qwen", "messages": []}).encode()
    async with behind(upload_idle_timeout_s=2) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", body[:1], headers=_JSON, length=len(body))
        for at in range(1, len(body)):
            await asyncio.sleep(0.005)
            await wire.send(body[at : at + 1])
        assert (await wire.rest()).status == 200
        assert upstream.seen[0].body == body


async def test_an_answer_to_the_head_of_a_body_that_is_not_read_is_passed_on(behind: Behind) -> None:
    body = _body(6_000_000)
    early = json_reply({"error": {"message": "too long"}}, 400)
    options = {"before_body": early, "read_body": False}
    async with behind(upstream=options) as (_, gw), gw.wire() as wire:
        sending = asyncio.create_task(wire.request("/chat", body, headers=_JSON))
        answer = await wire.rest()
        await asyncio.wait([sending])
        sending.exception()
        assert answer.status == 400
        assert answer.error["message"] == "too long"
    assert len(body) > 6_000_000


async def test_an_upstream_that_cannot_be_reached_is_told_after_a_large_body(
    running_gateway: Run,
) -> None:
    body = _body()
    with refusing_upstream() as url:
        async with running_gateway(url) as gw, gw.wire() as wire:
            await wire.request("/chat", body, headers=_JSON)
            answer = await wire.rest()
            assert (answer.status, answer.error["code"]) == (502, "upstream_unreachable")


async def test_a_large_body_waits_for_a_permit(behind: Behind) -> None:
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
