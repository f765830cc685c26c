"""Bodies cross the gateway byte for byte, both ways."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from openai import AsyncOpenAI, BadRequestError

from dabom.testing import (
    Send,
    chat_answer,
    chunk,
    error_reply,
    head,
    in_turn,
    json_reply,
    raw_reply,
    recording,
)
from dabom.testing.recorded import load_recording

if TYPE_CHECKING:
    from tests.gateway.conftest import Behind, RunningGateway, Wire

    from dabom.testing import ScriptedUpstream, Step

PATHS = ["/chat", "/v1/chat/completions"]
BODIES = {
    "unknown fields": b'{"model":"qwen","messages":[],"x_unknown":{"deep":[null,true]},"zz":"\xea\xb0\x80"}',
    "duplicate keys": b'{"model":"a","model":"qwen","messages":[],"messages":[{"role":"user"}]}',
    "numbers": b'{"messages":[],"seed":12345678901234567890,"temperature":1e5,"top_p":0.10,"a":-0.0}',
    "escapes": rb'{"messages":[{"role":"user","content":"\u00e9\/\uD83D\uDE00\u0000"}],"m\u006fdel":"q"}',
    "lone surrogates": rb'{"messages":[{"role":"user","content":"\udc00 then \ud83d"}]}',
    "key order": b'{"z":1,"messages":[],"a":2,"model":"qwen","B":3}',
    "white space": b' \r\n\t{ "messages" : [ ] ,\n "model"\t:\t"qwen" }\n\n',
    "stream that is no bool": b'{"messages":[],"stream":"yes","model":17}',
    "long string with escapes": b'{"messages":[],"d":"' + b"ab\\/c\\u00e9\xed\x95\x9c" * 9000 + b'"}',
    "many small values": b'{"messages":[],"n":[' + b",".join(b'{"k":"v%d"}' % i for i in range(9000)) + b"]}",
}
ODD_ANSWERS: dict[str, tuple[int, list[tuple[str, str]], bytes]] = {
    "created": (201, [("content-type", "application/json")], b"{ }"),
    "accepted, empty": (202, [], b""),
    "redirect": (307, [("location", "http://127.0.0.1:9/elsewhere"), ("content-type", "text/html")], b"go"),
    "found": (302, [("location", "/v1/other")], b""),
    "bad request": (400, [("content-type", "application/json; charset=utf-8")], b'{"error": {"code": 400}}'),
    "payment": (402, [("content-type", "text/plain")], b"pay"),
    "teapot": (418, [("content-type", "text/plain; charset=euc-kr")], "찻주전자".encode("euc-kr")),
    "rate limit": (429, [("retry-after", "7"), ("content-type", "application/json")], b"{}"),
    "plain 500": (500, [("content-type", "text/plain")], b"Internal Server Error"),
    "overload": (503, [("content-type", "application/json"), ("retry-after", "1")], b'{"error":"busy"}'),
    "no content type": (200, [], b"\x00\xff bytes"),
    "html": (200, [("content-type", "text/html")], b"<p>"),
    "unknown status": (599, [("content-type", "text/plain")], b"?"),
}


def big_body(size: int) -> bytes:
    noise = random.Random(1).randbytes(size * 3 // 4)
    url = b"data:video/mp4;base64," + noise.hex().encode()[:size]
    return (
        b'{"model":"qwen","messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"%b"}}]}]}'
        % url
    )


def whole(upstream: ScriptedUpstream) -> list[str]:
    """SHA-256 of what arrived whole; on a busy machine a stalled upload is begun anew."""
    return [seen.sha256 for seen in upstream.seen if seen.complete]


async def send_chunked(wire: Wire, path: str, body: bytes, size: int) -> None:
    await wire.request(path, headers=[("content-type", "application/json"), ("transfer-encoding", "chunked")])
    for start in range(0, len(body), size):
        await wire.send(chunk(body[start : start + size]))
    await wire.send(chunk(b""))


async def send_in_pieces(wire: Wire, path: str, body: bytes, size: int) -> None:
    kind = [("content-type", "application/json")]
    await wire.request(path, b"", headers=kind, length=len(body))
    for start in range(0, len(body), size):
        await wire.send(body[start : start + size])
        await asyncio.sleep(0)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", BODIES)
async def test_every_spelling_arrives_as_it_was_sent(behind: Behind, path: str, name: str) -> None:
    body = BODIES[name]
    digest = hashlib.sha256(body).hexdigest()
    async with behind() as (upstream, gw):
        assert (await gw.ask(path, body)).status == 200
        for send in (send_chunked, send_in_pieces):
            async with gw.wire() as wire:
                await send(wire, path, body, max(7, len(body) // 9))
                assert (await wire.rest()).status == 200
        assert whole(upstream) == [digest] * 3
        assert {(seen.method, seen.path) for seen in upstream.seen} == {("POST", "/v1/chat/completions")}
        assert {seen.header("content-length") for seen in upstream.seen} == {str(len(body))}
        assert {seen.header("content-type") for seen in upstream.seen} == {"application/json"}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_20_mb_arrive_whole(behind: Behind, path: str, framing: str) -> None:
    body = big_body(20 * 2**20)
    assert len(body) > 20 * 2**20
    async with behind(upstream={"keep_bodies": False}) as (upstream, gw), gw.wire() as wire:
        if framing == "length":
            await wire.request(path, body, headers=[("content-type", "application/json")])
        else:
            await send_chunked(wire, path, body, 300_007)
        assert (await wire.rest(30)).status == 200
        assert whole(upstream) == [hashlib.sha256(body).hexdigest()]


async def test_no_piece_of_a_large_body_gets_lost_at_any_border(behind: Behind) -> None:
    body = big_body(300_000)
    async with behind() as (upstream, gw):
        for size in (1_021, 4_096, 65_535, 65_536, 65_537, 200_000, len(body) - 1, len(body)):
            async with gw.wire() as wire:
                await send_in_pieces(wire, "/chat", body, size)
                assert (await wire.rest()).status == 200
        assert whole(upstream) == [hashlib.sha256(body).hexdigest()] * 8


async def test_requests_of_one_connection_do_not_mix(behind: Behind) -> None:
    bodies = [
        b'{"messages":[],"n":%d,"pad":"%b"}' % (n, b"x" * size)
        for n, size in enumerate((0, 90_000, 5, 70_000))
    ]
    async with behind() as (upstream, gw), gw.wire() as wire:
        for body in bodies:
            await wire.request("/chat", body, headers=[("content-type", "application/json")])
            assert (await wire.rest()).whole
        assert [seen.body for seen in upstream.seen if seen.complete] == bodies


async def test_a_body_without_a_content_type_is_json(behind: Behind) -> None:
    async with behind() as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", b'{"messages":[]}')
        assert (await wire.rest()).status == 200
        assert upstream.seen[0].header("content-type") is None


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("chunked", [False, True])
async def test_status_body_and_type_come_back_as_given(
    behind: Behind, chat: dict[str, Any], path: str, chunked: bool
) -> None:
    scripts = [
        raw_reply(body, status=status, headers=headers, chunked=chunked)
        for status, headers, body in ODD_ANSWERS.values()
    ]
    async with behind(in_turn(*scripts)) as (upstream, gw):
        for status, headers, body in ODD_ANSWERS.values():
            answer = await gw.ask(path, chat)
            assert (answer.status, answer.body, answer.whole) == (status, body, True)
            for wanted in ("content-type", "location", "retry-after"):
                assert answer.header(wanted) == dict(headers).get(wanted)
        assert len(upstream.seen) == len(scripts)  # a redirect is the client's business


@pytest.mark.parametrize("status", [200, 400])
async def test_content_encodings_pass_through(behind: Behind, chat: dict[str, Any], status: int) -> None:
    packed = gzip.compress(msgspec.json.encode(chat_answer("압축")))
    headers = [
        ("content-type", "application/json"),
        ("content-encoding", "gzip"),
        ("vary", "accept-encoding"),
    ]
    async with behind(raw_reply(packed, status=status, headers=headers)) as (upstream, gw):
        answer = await gw.ask("/chat", chat, headers=[("accept-encoding", "gzip, br")])
        assert upstream.seen[0].header("accept-encoding") == "gzip, br"
        assert (answer.header("content-encoding"), answer.body) == ("gzip", packed)
        await gw.ask("/chat", chat)
        assert (
            upstream.seen[1].header("accept-encoding") is None
        )  # nothing is asked for on the client's behalf


async def test_an_encoded_stream_passes_through(behind: Behind, stream: dict[str, Any]) -> None:
    packed = gzip.compress(b'data: {"choices":[]}\n\ndata: [DONE]\n\n')
    headers = [("content-type", "text/event-stream"), ("content-encoding", "gzip")]
    pieces = [packed[:11], packed[11:30], packed[30:]]
    async with behind(raw_reply(pieces, headers=headers, chunked=True)) as (_, gw):
        answer = await gw.ask("/chat", stream)
        assert (answer.body, answer.whole) == (packed, True)


async def test_an_answer_without_a_body(behind: Behind, chat: dict[str, Any]) -> None:
    async with behind([Send(head(204))]) as (_, gw), gw.wire() as wire:
        for _ in range(2):  # the connection is in order afterwards
            await wire.request("/chat", msgspec.json.encode(chat))
            answer = await wire.rest()
            assert (answer.status, answer.body, answer.whole) == (204, b"", True)


async def test_a_large_answer_keeps_its_length(behind: Behind, chat: dict[str, Any]) -> None:
    body = msgspec.json.encode(chat_answer("가" * 2_000_000))
    async with behind(raw_reply(body, headers=[("content-type", "application/json")])) as (_, gw):
        answer = await gw.ask("/chat", chat)
        assert answer.header("content-length") == str(len(body))
        assert hashlib.sha256(answer.body).digest() == hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    "name",
    [
        "vllm_text",
        "vllm_image",
        "vllm_schema",
        "vllm_tools",
        "vllm_error_bad_image",
        "vllm_error_too_long",
        "vllm_error_overload",
        "llama_cpp_image",
        "llama_cpp_error_too_long",
    ],
)
async def test_recorded_answers_come_back_untouched(behind: Behind, chat: dict[str, Any], name: str) -> None:
    recorded = load_recording(name)
    async with behind(recording(name)) as (_, gw):
        answer = await gw.ask("/v1/chat/completions", chat)
        assert (answer.status, answer.body.decode()) == (recorded.status, recorded.body)
        assert answer.header("content-type") == next(
            value for key, value in recorded.headers if key.lower() == "content-type"
        )


def sdk(gw: RunningGateway) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{gw.url}/v1", api_key="sk-client", max_retries=0)


async def test_openais_own_client_talks_through_it(behind: Behind) -> None:
    async with behind(json_reply(chat_answer("안녕하세요"))) as (_, gw), sdk(gw) as client:
        answer = await client.chat.completions.create(
            model="qwen", messages=[{"role": "user", "content": "안녕"}]
        )
        assert answer.choices[0].message.content == "안녕하세요"
        assert [model.id async for model in client.models.list()] == ["qwen"]


async def test_openais_own_client_finds_an_upstreams_error(behind: Behind) -> None:
    async with behind(error_reply(400, "image cannot be decoded")) as (_, gw), sdk(gw) as client:
        with pytest.raises(BadRequestError, match="image cannot be decoded"):
            await client.chat.completions.create(model="qwen", messages=[{"role": "user", "content": "x"}])


def early_refusal(seen: object) -> list[Step]:
    return error_reply(413, "too large for me")


async def test_an_upstream_may_answer_before_the_body_is_through(behind: Behind) -> None:
    body = big_body(3 * 2**20)
    async with behind(upstream={"before_body": early_refusal}) as (_, gw):
        answer = await gw.ask("/chat", body)
        assert (answer.status, answer.error["message"]) == (413, "too large for me")
