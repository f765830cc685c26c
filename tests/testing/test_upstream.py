"""ScriptedUpstream against aiohttp and against bare sockets."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import socket

import aiohttp
import pytest

from dabom.testing import (
    AwaitBody,
    Close,
    Reset,
    ScriptedUpstream,
    Seen,
    Send,
    Stall,
    Step,
    Wait,
    WaitFor,
    chat_answer,
    chat_events,
    cut_at,
    drip,
    error_reply,
    hanging_upstream,
    in_turn,
    json_reply,
    raw_reply,
    refusing_upstream,
    sent_bytes,
    sse_reply,
)


async def post(url: str, body: bytes | io.BytesIO = b"{}") -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/chat/completions", data=body) as answer,
    ):
        return answer.status, await answer.read()


async def connect(up: ScriptedUpstream) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", up.port)


async def read_all(reader: asyncio.StreamReader, got: list[bytes]) -> None:
    while piece := await reader.read(1000):
        got.append(piece)


def head(length: int, more: str = "") -> bytes:
    return f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{more}\r\n".encode()


async def test_default_script_answers_and_records_the_request() -> None:
    body = b'{"model":"qwen","x":1e5}'
    async with ScriptedUpstream() as up:
        status, reply = await post(up.url, body)
        assert status == 200
        assert json.loads(reply) == chat_answer()
        (seen,) = up.seen
        assert (seen.method, seen.path, seen.body, seen.complete) == (
            "POST",
            "/v1/chat/completions",
            body,
            True,
        )
        assert seen.sha256 == hashlib.sha256(body).hexdigest()
        assert seen.json()["x"] == 1e5
        await up.wait_idle()
        assert seen.finished_at is not None
        assert seen.disconnected_at is None


async def test_headers_are_raw_pairs_and_the_path_has_its_query() -> None:
    async with ScriptedUpstream() as up:
        reader, writer = await connect(up)
        writer.write(b"POST /v1/x?a=1&b=%20 HTTP/1.1\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 0\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        (seen,) = up.seen
        assert seen.path == "/v1/x?a=1&b=%20"
        assert seen.headers == [("X-A", "1"), ("x-a", "2"), ("Content-Length", "0")]
        assert seen.header("x-A") == "1"
        writer.close()
        await writer.wait_closed()


async def test_chunked_upload_and_large_body() -> None:
    body = bytes(range(256)) * 80_000  # 20 MB

    async def pieces() -> object:
        for start in range(0, len(body), 1_000_000):
            yield body[start : start + 1_000_000]

    async with ScriptedUpstream(keep_bodies=False) as up, aiohttp.ClientSession() as session:
        for data in (pieces(), io.BytesIO(body)):
            async with session.post(f"{up.url}/chat/completions", data=data) as answer:
                assert answer.status == 200
        assert {seen.sha256 for seen in up.seen} == {hashlib.sha256(body).hexdigest()}
        assert [seen.body_bytes for seen in up.seen] == [len(body)] * 2
        assert [seen.body for seen in up.seen] == [b"", b""]
        assert up.seen[0].header("transfer-encoding") == "chunked"


async def test_keep_alive_serves_pipelined_requests_in_order() -> None:
    async with ScriptedUpstream(lambda seen: json_reply({"n": seen.json()})) as up:
        reader, writer = await connect(up)
        writer.write(b"".join(head(1) + str(n).encode() for n in (1, 2, 3)))
        for n in (1, 2, 3):
            answer_head = await reader.readuntil(b"\r\n\r\n")
            assert answer_head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert await reader.readexactly(7) == b'{"n":%d}' % n
        assert up.connections_total == 1
        writer.close()
        await writer.wait_closed()
        await up.wait_closed()


async def test_connection_close_is_honoured() -> None:
    async with ScriptedUpstream() as up:
        reader, writer = await connect(up)
        writer.write(head(0, "Connection: close\r\n"))
        assert (await reader.read()).endswith(b"}")
        writer.close()
        await writer.wait_closed()


async def test_expect_100_continue() -> None:
    async with ScriptedUpstream() as up:
        reader, writer = await connect(up)
        writer.write(head(2, "Expect: 100-continue\r\n"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hi")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert up.seen[0].body == b"hi"
        writer.close()
        await writer.wait_closed()


async def test_stream_arrives_event_by_event() -> None:
    gate = asyncio.Event()
    first, *rest = sse_reply(chat_events("a", "b"))
    script: list[Step] = [first, rest[0], WaitFor(gate), *rest[1:]]
    async with ScriptedUpstream(script) as up, aiohttp.ClientSession() as session:
        async with session.post(f"{up.url}/chat/completions") as answer:
            assert answer.content_type == "text/event-stream"
            assert b'"a"' in await answer.content.readuntil(b"\n\n")
            gate.set()
            rest_of_it = await answer.content.read()
        assert rest_of_it.endswith(b"data: [DONE]\n\n")
        assert rest_of_it.count(b"data: ") == 2


async def test_small_pieces_leave_at_once() -> None:
    async with ScriptedUpstream() as up:
        _, writer = await connect(up)
        while not up.open_connections:  # noqa: ASYNC110 - the accept of this very loop
            await asyncio.sleep(0.001)
        [accepted] = up._open
        sock = accepted._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        writer.close()


async def test_unframed_stream_ends_with_the_connection() -> None:
    async with ScriptedUpstream(sse_reply([{"a": 1}], chunked=False, done=False)) as up:
        assert await post(up.url) == (200, b'data: {"a":1}\n\n')


async def test_chunked_json_and_errors() -> None:
    script = in_turn(
        json_reply({"a": 1}, chunked=True), error_reply(503, "busy", headers=[("retry-after", "1")])
    )
    async with ScriptedUpstream(script) as up, aiohttp.ClientSession() as session:
        async with session.post(up.url) as answer:
            assert answer.headers["transfer-encoding"] == "chunked"
            assert await answer.json() == {"a": 1}
        for _ in range(2):
            async with session.post(up.url) as answer:
                assert (answer.status, answer.headers["retry-after"]) == (503, "1")
                assert (await answer.json())["error"]["message"] == "busy"


@pytest.mark.parametrize("octets", [0, 5, 20, 60, 200])
async def test_reset_breaks_the_answer_at_any_byte(octets: int) -> None:
    whole = json_reply(chat_answer("x" * 500))
    async with ScriptedUpstream(cut_at(whole, octets, then=Reset())) as up:
        reader, writer = await connect(up)
        writer.write(head(0))
        got: list[bytes] = []
        with pytest.raises(ConnectionResetError):
            await read_all(reader, got)
        assert sent_bytes(whole).startswith(b"".join(got))
        assert len(b"".join(got)) <= octets
        writer.close()
        with pytest.raises(ConnectionResetError):
            await writer.wait_closed()
        await up.wait_closed()


async def test_close_cuts_with_fin() -> None:
    whole = json_reply(chat_answer())
    async with ScriptedUpstream(cut_at(whole, 50, then=Close())) as up:
        reader, writer = await connect(up)
        writer.write(head(0))
        assert await reader.read() == sent_bytes(whole)[:50]
        writer.close()
        await writer.wait_closed()


async def test_drip_keeps_the_bytes() -> None:
    whole = sse_reply(chat_events("안", "녕"))
    slow = drip(whole, 7)
    assert sent_bytes(slow) == sent_bytes(whole)
    async with ScriptedUpstream(slow) as up:
        assert (await post(up.url))[1].endswith(b"data: [DONE]\n\n")


async def test_stall_ends_when_the_peer_leaves() -> None:
    async with ScriptedUpstream([*sse_reply([{"a": 1}])[:2], Stall()]) as up:
        _, writer = await connect(up)
        writer.write(head(0))
        await up.wait_seen(1)
        assert up.busy == 1
        with pytest.raises(TimeoutError, match="1 busy"):
            await up.wait_idle(within_s=0.05)
        writer.close()
        await writer.wait_closed()
        await up.wait_idle()
        await up.wait_closed()
        assert up.seen[0].disconnected_at is not None
        assert up.seen[0].finished_at is None


async def test_a_peer_that_leaves_while_uploading_is_recorded() -> None:
    async with ScriptedUpstream() as up:
        _, writer = await connect(up)
        writer.write(head(100) + b"half")
        (seen,) = await up.wait_seen(1)
        writer.close()
        await writer.wait_closed()
        await up.wait_closed()
        assert (seen.complete, seen.body, seen.disconnected_at is not None) == (False, b"half", True)


async def test_early_answer_before_the_body() -> None:
    async with ScriptedUpstream(before_body=error_reply(413)) as up:
        reader, writer = await connect(up)
        writer.write(head(10))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413")
        assert not up.seen[0].complete
        writer.write(b"0123456789" + head(0))  # the body is still read, and the connection goes on
        await up.wait_seen(2)
        assert up.seen[0].body == b"0123456789"
        writer.close()
        await writer.wait_closed()


async def test_before_body_may_leave_a_request_to_the_script() -> None:
    def early(seen: Seen) -> list[Step] | None:
        return error_reply(429) if seen.header("x-early") else None

    async with ScriptedUpstream(before_body=early) as up, aiohttp.ClientSession() as session:
        async with session.post(up.url, data=b"1", headers={"x-early": "1"}) as answer:
            assert answer.status == 429
        async with session.post(up.url, data=b"1") as answer:
            assert answer.status == 200


async def test_an_unread_body_stops_the_sender_and_its_leaving_is_noticed() -> None:
    async with ScriptedUpstream(before_body=[Stall()], read_body=False) as up:
        _, writer = await connect(up)
        writer.write(head(50_000_000) + bytes(50_000_000))
        await up.wait_seen(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 0.2)
        assert up.seen[0].body_bytes < 5_000_000
        writer.transport.abort()
        await up.wait_closed()
        assert up.seen[0].disconnected_at is not None


async def test_an_unread_body_can_be_read_later() -> None:
    script: list[Step] = [Wait(0.05), AwaitBody(), *json_reply({})]
    async with ScriptedUpstream(before_body=script, read_body=False) as up:
        status, _ = await post(up.url, io.BytesIO(bytes(3_000_000)))
        assert status == 200
        assert up.seen[0].body_bytes == 3_000_000


async def test_models_and_health_are_answered_unless_the_script_takes_them() -> None:
    async with ScriptedUpstream(models=("a", "b")) as up, aiohttp.ClientSession() as session:
        async with session.get(f"{up.url}/models") as answer:
            assert [model["id"] for model in (await answer.json())["data"]] == ["a", "b"]
        async with session.get(f"{up.root}/health") as answer:
            assert answer.status == 200
        assert up.seen == []
        assert [seen.path for seen in up.probes] == ["/v1/models", "/health"]
    async with ScriptedUpstream(error_reply(500), models=None) as up, aiohttp.ClientSession() as session:
        async with session.get(f"{up.url}/models") as answer:
            assert answer.status == 500
        assert [seen.path for seen in up.seen] == ["/v1/models"]


async def test_bytes_that_are_no_http_are_sent_as_they_are() -> None:
    async with ScriptedUpstream([Send(b"garbage\r\n\r\n"), Close()]) as up:
        with pytest.raises(aiohttp.ClientError):
            await post(up.url)


async def test_a_malformed_request_is_refused() -> None:
    async with ScriptedUpstream() as up:
        reader, writer = await connect(up)
        writer.write(b"\x00\x01 nonsense\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        writer.close()
        await writer.wait_closed()
        assert up.seen == []


async def test_a_script_that_fails_fails_the_test() -> None:
    def broken(_: Seen) -> list[Step]:
        raise KeyError("no such item")

    async def run() -> None:
        async with ScriptedUpstream(broken) as up:
            with pytest.raises(aiohttp.ClientError):
                await post(up.url)

    with pytest.raises(KeyError, match="no such item"):
        await run()


async def test_the_port_can_be_taken_again() -> None:
    async with ScriptedUpstream() as up:
        port = up.port
        await post(up.url)
    async with ScriptedUpstream(port=port) as up:
        assert up.port == port
        assert (await post(up.url))[0] == 200


async def test_refusing_and_hanging_upstreams() -> None:
    async with aiohttp.ClientSession() as session:
        with refusing_upstream() as url, pytest.raises(aiohttp.ClientConnectorError):
            await session.post(url)
        with hanging_upstream() as url:
            for _ in range(3):
                with pytest.raises(aiohttp.ConnectionTimeoutError):
                    await session.post(url, timeout=aiohttp.ClientTimeout(sock_connect=0.3))


async def test_raw_reply_piece_by_piece() -> None:
    async with ScriptedUpstream(raw_reply([b"ab", b"cd"], status=299, headers=[("x-b", "1")])) as up:
        assert await post(up.url) == (299, b"abcd")
