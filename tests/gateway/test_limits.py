"""Requests that are too large, too slow or not what they should be: a clear error, and nothing else."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from tests.gateway.conftest import Behind, RunningGateway, Wire

_JSON = [("content-type", "application/json")]
_BODY = b'{"model":"qwen","messages":[]}'
_PATHS = ["/chat", "/v1/chat/completions", "/v1/embeddings"]


async def _raw(gw: RunningGateway, octets: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes; status, headers and body of what comes until the gateway closes."""
    async with gw.wire() as wire:
        await wire.send(octets)
        return _parse(await wire.closed())


def _parse(text: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = text.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    assert len(body) == int(headers["content-length"])
    return int(line.split()[1]), headers, body


async def _expect_error(wire: Wire, status: int, code: str) -> None:
    answer = await wire.rest()
    assert (answer.status, answer.error["code"]) == (status, code)
    assert answer.header("content-type") == "application/json"
    assert answer.header("x-request-id")
    assert answer.whole


@pytest.mark.parametrize("path", [*_PATHS, "/chat/batch"])
async def test_a_declared_length_over_the_limit_is_refused_without_reading(behind: Behind, path: str) -> None:
    async with behind(max_body_bytes=10_000, max_batch_bytes=10_000) as (upstream, gw), gw.wire() as wire:
        await wire.request(path, b"", headers=_JSON, length=10_001)
        code = "batch_too_large" if path == "/chat/batch" else "body_too_large"
        await _expect_error(wire, 413, code)
        assert await wire.closed() == b""
        assert not upstream.seen


async def test_a_client_that_asks_before_it_sends_is_refused_without_a_continue(behind: Behind) -> None:
    async with behind(max_body_bytes=10_000) as (upstream, gw):
        head = b"POST /chat HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-type: application/json\r\n"
        status, _, body = await _raw(gw, head + b"content-length: 20000\r\n\r\n")
        assert status == 413
        assert json.loads(body)["error"]["code"] == "body_too_large"
        assert not upstream.seen


async def test_a_client_that_asks_before_it_sends_may_send(behind: Behind) -> None:
    async with behind() as (upstream, gw), gw.wire() as wire:
        head = [*_JSON, ("expect", "100-continue")]
        await wire.request("/chat", b"", headers=head, length=len(_BODY))
        async with asyncio.timeout(5):
            assert (await wire._reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        await wire.send(_BODY)
        assert (await wire.rest()).status == 200
        assert upstream.seen[0].body == _BODY
        assert upstream.seen[0].header("expect") is None


@pytest.mark.parametrize("path", [*_PATHS, "/chat/batch"])
async def test_a_chunked_body_over_the_limit_is_refused_before_its_end(behind: Behind, path: str) -> None:
    async with behind(max_body_bytes=10_000, max_batch_bytes=10_000) as (upstream, gw), gw.wire() as wire:
        await wire.request(path, b"", headers=[*_JSON, ("transfer-encoding", "chunked")])
        for _ in range(3):
            await wire.send(b"1000\r\n" + b" " * 0x1000 + b"\r\n")
        code = "batch_too_large" if path == "/chat/batch" else "body_too_large"
        await _expect_error(wire, 413, code)
        assert not upstream.seen


async def test_a_body_of_just_the_limit_passes(behind: Behind) -> None:
    body = _BODY + b" " * (10_000 - len(_BODY))
    async with behind(max_body_bytes=10_000) as (upstream, gw):
        assert (await gw.ask("/chat", body)).status == 200
        assert (await gw.ask("/chat", body + b" ")).status == 413
        assert [len(seen.body) for seen in upstream.seen] == [10_000]


async def test_other_bodies_have_the_same_limit(behind: Behind) -> None:
    async with behind(max_body_bytes=10_000) as (upstream, gw):
        kind = [("content-type", "multipart/form-data; boundary=x")]
        assert (await gw.ask("/v1/audio/transcriptions", b"x" * 10_001, headers=kind)).status == 413
        assert not upstream.seen
        assert (await gw.ask("/v1/audio/transcriptions", b"x" * 10_000, headers=kind)).status == 200


@pytest.mark.parametrize("path", ["/chat", "/v1/chat/completions", "/chat/batch"])
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "image/png", "json"])
async def test_a_wrong_content_type_is_a_415(behind: Behind, path: str, kind: str) -> None:
    async with behind() as (upstream, gw):
        answer = await gw.ask(path, _BODY, headers=[("content-type", kind)])
        assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")
        assert "application/json" in answer.error["message"]
        assert not upstream.seen


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "Application/JSON", "application/x+json"]
)
async def test_json_goes_by_several_names(behind: Behind, kind: str) -> None:
    async with behind() as (upstream, gw):
        assert (await gw.ask("/chat", _BODY, headers=[("content-type", kind)])).status == 200
        assert upstream.seen[0].header("content-type") == kind


@pytest.mark.parametrize("path", ["/chat", "/chat/batch"])
async def test_a_compressed_body_is_a_415(behind: Behind, path: str) -> None:
    async with behind() as (upstream, gw):
        headers = [*_JSON, ("content-encoding", "gzip")]
        answer = await gw.ask(path, gzip.compress(_BODY), headers=headers)
        assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")
        assert not upstream.seen
        headers[-1] = ("content-encoding", "identity")
        assert (await gw.ask("/chat", _BODY, headers=headers)).status == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"nope", b'{"a":\xff}', b'{"a":NaN}', _BODY + _BODY])
async def test_malformed_json_is_a_400(behind: Behind, body: bytes) -> None:
    async with behind() as (upstream, gw):
        answer = await gw.ask("/chat", body)
        assert (answer.status, answer.error["code"]) == (400, "invalid_json")
        assert answer.error["type"] == "invalid_request_error"
        assert not upstream.seen


@pytest.mark.parametrize("part", [b"P", b"POST /chat HTTP/1.1\r\n", b"POST /chat HTTP/1.1\r\nhost: a\r\nx: "])
async def test_a_head_that_does_not_end_is_a_408(behind: Behind, part: bytes) -> None:
    async with behind(header_timeout_s=0.3) as (_, gw):
        status, headers, body = await _raw(gw, part)
        assert status == 408
        assert json.loads(body)["error"]["code"] == "header_timeout"
        assert headers["connection"] == "close"


async def test_a_head_that_comes_drop_by_drop_has_one_clock(behind: Behind) -> None:
    async with behind(header_timeout_s=0.4) as (_, gw), gw.wire() as wire:
        dripping = asyncio.create_task(_drip(wire, b"POST /chat HTTP/1.1\r\nx: " + b"a" * 10_000))
        status, _, _ = _parse(await wire.closed())
        dripping.cancel()
        await asyncio.wait([dripping])
        assert status == 408


async def _drip(wire: Wire, text: bytes) -> None:
    try:
        for at in range(len(text)):
            await wire.send(text[at : at + 1])
            await asyncio.sleep(0.01)
    except ConnectionError:
        return


async def test_the_second_head_of_a_connection_has_a_clock_too(behind: Behind) -> None:
    async with behind(header_timeout_s=0.3) as (_, gw), gw.wire() as wire:
        await wire.request("/chat", _BODY, headers=_JSON)
        assert (await wire.rest()).status == 200
        await asyncio.sleep(0.5)  # a connection that rests is no slow head
        await wire.send(b"POST /chat HT")
        status, _, _ = _parse(await wire.closed())
        assert status == 408


async def test_a_connection_on_which_nothing_comes_is_closed(behind: Behind) -> None:
    async with behind(header_timeout_s=0.2) as (_, gw), gw.wire() as wire:
        assert await wire.closed() == b""


@pytest.mark.parametrize(
    "head",
    [
        b"POST /chat HTTP/1.1\r\n"
        + b"".join(b"x-%d: %b\r\n" % (n, b"v" * 100) for n in range(200))
        + b"\r\n",
        b"POST /chat HTTP/1.1\r\nx-long: " + b"v" * 20_000,
        b"POST /chat HTTP/1.1\r\nx-long: " + b"v" * 20_000 + b"\r\n\r\n",
        b"POST /chat HTTP/1.1\r\n" + b"n" * 20_000,
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /" + b"a" * 20_000,
    ],
    ids=["many", "endless", "long", "name", "url", "endless-url"],
)
async def test_an_oversized_head_is_a_431(behind: Behind, head: bytes) -> None:
    async with behind(max_header_bytes=8192) as (upstream, gw):
        status, headers, body = await _raw(gw, head)
        assert status == 431
        assert json.loads(body)["error"]["code"] == "headers_too_large"
        assert headers["content-type"] == "application/json"
        assert b"vvv" not in body
        assert not upstream.seen


async def test_an_endless_head_is_cut_while_it_comes(behind: Behind) -> None:
    async with behind() as (_, gw), gw.wire() as wire:
        await wire.send(b"POST /chat HTTP/1.1\r\n")
        sent = 0
        try:
            while sent < 50_000_000:
                await wire.send(b"x-a: " + b"v" * 8000 + b"\r\n")
                sent += 8000
        except ConnectionError:
            pass
        assert sent < 20_000_000


async def test_a_head_below_the_limit_passes(behind: Behind) -> None:
    async with behind() as (upstream, gw):
        headers = [*_JSON, *((f"x-{n}", "v" * 1000) for n in range(50))]
        assert (await gw.ask("/chat", _BODY, headers=headers)).status == 200
        assert upstream.seen[0].header("x-49") == "v" * 1000


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),
        b"hello\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
        b"POST /chat HTTP/1.1\r\nbad header\r\n\r\n",
        b"POST /chat HTTP/1.1\r\ncontent-length: nope\r\n\r\n",
        b"POST /chat HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /chat HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"GET /chat HTTP/9.9\r\n\r\n",
    ],
    ids=["tls", "text", "binary", "header", "length", "both", "lengths", "version"],
)
async def test_what_is_not_http_is_a_400(behind: Behind, garbage: bytes) -> None:
    async with behind() as (upstream, gw):
        status, headers, body = await _raw(gw, garbage)
        assert status == 400
        assert json.loads(body)["error"]["type"] == "invalid_request_error"
        assert headers["connection"] == "close"
        assert not upstream.seen
        assert (await gw.ask("/healthz")).status == 200


async def test_a_broken_chunk_ends_the_request(behind: Behind) -> None:
    async with behind() as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", b"zz\r\n" + _BODY, headers=[*_JSON, ("transfer-encoding", "chunked")])
        await wire.closed()
        await gw.until(lambda: gw.gateway.running == 0)
        assert not upstream.seen


async def test_pipelined_requests_are_answered_in_turn(behind: Behind) -> None:
    async with behind() as (upstream, gw), gw.wire() as wire:
        bodies = [b'{"model":"qwen","n":%d}' % n for n in range(5)]
        head = b"POST /chat HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        last = [b"", b"", b"", b"", b"connection: close\r\n"]
        await wire.send(
            b"".join(head % len(body) + end + b"\r\n" + body for body, end in zip(bodies, last, strict=True))
        )
        text = await wire.closed()
        assert text.count(b"HTTP/1.1 200 OK") == 5
        assert [seen.body for seen in upstream.seen] == bodies


async def test_a_pipelined_request_with_an_oversized_head_does_not_disturb_the_one_before(
    behind: Behind,
) -> None:
    async with behind(max_header_bytes=8192) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", _BODY, headers=_JSON)
        await upstream.wait_seen()
        answer = await wire.rest()
        await wire.send(b"GET / HTTP/1.1\r\nx: " + b"v" * 20_000)
        status, _, _ = _parse(await wire.closed())
        assert (answer.status, status) == (200, 431)


async def test_http_1_0_is_answered_and_closed(behind: Behind) -> None:
    async with behind() as (upstream, gw):
        head = b"POST /chat HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        status, headers, body = await _raw(gw, head % len(_BODY) + _BODY)
        assert status == 200
        assert json.loads(body)["object"] == "chat.completion"
        assert upstream.seen[0].body == _BODY
        assert headers.get("transfer-encoding") is None


async def test_a_refused_request_leaves_the_connection_usable_when_its_body_has_come(behind: Behind) -> None:
    async with behind() as (_, gw), gw.wire() as wire:
        for body, status in ((b"nope", 400), (_BODY, 200), (b"{", 400), (_BODY, 200)):
            await wire.request("/chat", body, headers=_JSON)
            assert (await wire.rest()).status == status


async def test_unknown_paths_and_methods_are_json_errors(behind: Behind) -> None:
    async with behind() as (upstream, gw):
        for path, method, status in (
            ("/nope", "GET", 404),
            ("/nope", "POST", 404),
            ("/docs/", "GET", 404),
            ("/chat", "GET", 405),
            ("/v1/chat/completions", "DELETE", 405),
            ("/healthz", "POST", 405),
        ):
            answer = await gw.ask(path, _BODY if method == "POST" else None, method=method)
            assert answer.status == status
            assert set(answer.error) == {"message", "type", "param", "code"}
            assert answer.header("x-request-id")
        assert not upstream.seen


async def test_a_path_that_climbs_out_is_refused(behind: Behind) -> None:
    async with behind() as (upstream, gw):
        for path in ("/v1/../metrics", "/v1/%2e%2e/metrics", "/v1/a/..%2f..%2fmetrics", "/v1/..\\metrics"):
            assert (await gw.ask(path)).status == 400
        assert not upstream.seen


async def test_the_list_of_models_takes_no_post(behind: Behind) -> None:
    async with behind() as (upstream, gw):
        answer = await gw.ask("/v1/models", _BODY)
        assert (answer.status, answer.error["code"]) == (405, "method_not_allowed")
        assert not upstream.seen


async def test_a_length_that_is_only_promised_takes_no_memory(behind: Behind) -> None:
    async with behind() as (_, gw), gw.wire() as wire:
        before = psutil.Process().memory_info().rss
        await wire.request("/chat/batch", b'{"items":', headers=_JSON, length=400 * 2**20)
        await gw.until(lambda: gw.gateway.running == 1)
        await asyncio.sleep(0.05)
        assert psutil.Process().memory_info().rss - before < 50 * 2**20
