"""The protocol under a small app of its own: bodies without loss, limits of heads, ends that are noticed."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import h11
import pytest
import uvicorn

from dabom.app.protocol import build_protocol
from dabom.gateway import ABORT, LOST, Clocks, Limits

App = Callable[[Any, Any, Any], Awaitable[None]]


@asynccontextmanager
async def _serving(
    app: App, limits: Limits | None = None, clocks: Clocks | None = None
) -> AsyncIterator[int]:
    config = uvicorn.Config(
        app,
        port=0,
        http=build_protocol(clocks or Clocks(), limits or Limits()),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    try:
        async with asyncio.timeout(10):
            while not server.started:  # noqa: ASYNC110 - a flag of uvicorn
                await asyncio.sleep(0.002)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await serving


async def _say(send: Any, body: bytes, status: int = 200) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _digest(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the digest of the body; takes each chunk at its leisure."""
    digest, more = hashlib.sha256(), True
    while more:
        message = await receive()
        digest.update(message["body"])
        more = message["more_body"]
        await asyncio.sleep(0)
    await _say(send, digest.hexdigest().encode())


class _Client:
    """One connection, judged by h11."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._parser = h11.Connection(h11.CLIENT)

    async def send(self, octets: bytes) -> None:
        self.writer.write(octets)
        await self.writer.drain()

    async def answer(self, within_s: float = 10) -> tuple[int, bytes]:
        """Status and body of the next answer, which must be whole."""
        parser = self._parser
        if parser.our_state is h11.DONE:
            parser.start_next_cycle()
        parser.send(h11.Request(method="POST", target="/", headers=[("host", "a")]))
        parser.send(h11.EndOfMessage())
        status, body = 0, b""
        async with asyncio.timeout(within_s):
            while not isinstance(event := parser.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    parser.receive_data(await self.reader.read(65_536))
                elif isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
        return status, body


@asynccontextmanager
async def _client(port: int) -> AsyncIterator[_Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield _Client(reader, writer)
    finally:
        writer.close()


def _post(body: bytes, chunk: int | None = None) -> bytes:
    head = b"POST / HTTP/1.1\r\nhost: a\r\n"
    if chunk is None:
        return head + b"content-length: %d\r\n\r\n%b" % (len(body), body)
    pieces = [body[at : at + chunk] for at in range(0, len(body), chunk)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])
    return head + b"transfer-encoding: chunked\r\n\r\n" + framed


@pytest.mark.parametrize("chunk", [None, 1, 1000, 3_000_000])
@pytest.mark.parametrize("size", [0, 1, 5000, 3_000_000])
async def test_a_body_comes_whole(size: int, chunk: int | None) -> None:
    if chunk == 1:
        size = min(size, 5000)
    body = random.Random(size).randbytes(size)
    async with _serving(_digest) as port, _client(port) as client:
        for _ in range(2):
            await client.send(_post(body, chunk))
            assert await client.answer() == (200, hashlib.sha256(body).hexdigest().encode())


async def test_bodies_of_a_pipeline_do_not_mix() -> None:
    bodies = [random.Random(n).randbytes(size) for n, size in enumerate((10, 700_000, 0, 1_500_000, 5))]
    async with _serving(_digest) as port, _client(port) as client:
        sending = asyncio.create_task(client.send(b"".join(map(_post, bodies))))
        for body in bodies:
            assert await client.answer() == (200, hashlib.sha256(body).hexdigest().encode())
        await sending


async def test_a_client_is_pushed_back_while_the_app_does_not_receive() -> None:
    gate = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await gate.wait()
        await _digest(scope, receive, send)

    body = bytes(30_000_000)
    async with _serving(slow) as port, _client(port) as client:
        sending = asyncio.create_task(client.send(_post(body)))
        done, _ = await asyncio.wait([sending], timeout=0.3)
        assert not done
        gate.set()
        assert await client.answer() == (200, hashlib.sha256(body).hexdigest().encode())
        await sending


async def test_an_app_that_does_not_want_the_body_may_answer() -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await _say(send, b"no", 400)

    async with _serving(refuse) as port, _client(port) as client:
        await client.send(_post(b"x" * 10_000))
        assert await client.answer() == (400, b"no")
        await client.send(_post(b"y" * 10_000))
        assert await client.answer() == (400, b"no")


async def test_the_end_of_a_connection_is_received_after_the_body() -> None:
    received = asyncio.Queue[dict[str, Any]]()

    async def listen(scope: Any, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            received.put_nowait(message)
            if message["type"] == "http.disconnect":
                return

    async with _serving(listen) as port:
        async with _client(port) as client:
            await client.send(_post(b"hello"))
            assert await received.get() == {"type": "http.request", "body": b"hello", "more_body": False}
        async with asyncio.timeout(1):
            while (message := await received.get())["type"] != "http.disconnect":
                assert message == {"type": "http.request", "body": b"", "more_body": False}


@pytest.mark.parametrize("waiting", ["nothing", "unread"])
async def test_a_lost_connection_is_told_though_nobody_receives(waiting: str) -> None:
    begun, lost = asyncio.Event(), asyncio.Event()

    async def work(scope: Any, receive: Any, send: Any) -> None:
        scope[LOST].append(lost.set)
        begun.set()
        await lost.wait()

    async with _serving(work) as port:
        async with _client(port) as client:
            await client.send(_post(b"x" * (10 if waiting == "nothing" else 900_000)))
            await begun.wait()
        async with asyncio.timeout(1):
            await lost.wait()


async def test_an_app_can_abort_the_connection() -> None:
    async def abort(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        scope[ABORT]()

    async with _serving(abort) as port, _client(port) as client:
        await client.send(_post(b""))
        async with asyncio.timeout(5):
            try:
                assert not (await client.reader.read()).endswith(b"0\r\n\r\n")
            except ConnectionResetError:
                return


async def test_limits_of_the_head_hold_for_each_request_of_a_connection() -> None:
    limits = Limits(max_header_bytes=2048)
    async with _serving(_digest, limits) as port, _client(port) as client:
        for _ in range(5):  # together they are larger than the limit
            await client.send(_post(b"a").replace(b"host: a", b"host: a\r\nx: " + b"v" * 1000))
            assert (await client.answer())[0] == 200
        await client.send(_post(b"a").replace(b"host: a", b"host: a\r\nx: " + b"v" * 3000))
        status, body = await client.answer()
        assert status == 431
        assert b'"headers_too_large"' in body
        assert await client.reader.read() == b""


async def test_a_large_body_does_not_count_as_a_head() -> None:
    async with _serving(_digest, Limits(max_header_bytes=2048)) as port, _client(port) as client:
        await client.send(_post(b"a" * 100_000))
        assert (await client.answer())[0] == 200


async def test_a_body_may_take_longer_than_a_head() -> None:
    async with _serving(_digest, clocks=Clocks(header_timeout_s=0.2)) as port, _client(port) as client:
        request = _post(b"ab")
        await client.send(request[:-1])
        await asyncio.sleep(0.4)
        await client.send(request[-1:])
        assert (await client.answer())[0] == 200


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the names of the headers, after the body."""
    message = {"more_body": True}
    while message.get("more_body"):
        message = await receive()
    await _say(send, b" ".join(name for name, _ in scope["headers"]))


_CHUNKED = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"


async def test_trailers_never_become_headers() -> None:
    async with _serving(_echo) as port, _client(port) as client:
        await client.send(_CHUNKED + b"0\r\nauthorization: b\r\ncookie: c\r\n\r\n")
        assert await client.answer() == (200, b"host transfer-encoding")


@pytest.mark.parametrize(
    "more", [b"0\r\n" + b"a: b\r\n" * 50_000, b"0\r\na: " + b"b" * 300_000, b"2;" + b"x" * 300_000]
)
async def test_trailers_and_extensions_have_a_limit(more: bytes) -> None:
    async with _serving(_echo, Limits(max_header_bytes=1024)) as port, _client(port) as client:
        await client.send(_CHUNKED)
        await asyncio.sleep(0.05)  # else they may come with the body, in one piece
        for at in range(0, len(more), 10_000):
            await client.send(more[at : at + 10_000])
        status, body = await client.answer()
        assert (status, b"headers_too_large" in body) == (431, True)


async def test_a_body_that_breaks_is_answered_with_a_400() -> None:
    async with _serving(_digest) as port, _client(port) as client:
        await client.send(_CHUNKED + b"nonsense\r\n")
        status, body = await client.answer()
        assert (status, b"invalid_request" in body) == (400, True)


_UPGRADE = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AA\r\n"


@pytest.mark.parametrize("size", [0, 5, 700_000])
@pytest.mark.parametrize("pause_s", [0, 0.05])
async def test_an_upgrade_is_declined_and_its_body_taken(size: int, pause_s: float) -> None:
    body = random.Random(size).randbytes(size)
    request = _post(body).replace(b"host: a\r\n", b"host: a\r\n" + _UPGRADE)
    end = request.index(b"\r\n\r\n") + 4
    async with _serving(_digest) as port, _client(port) as client:
        for _ in range(3):
            await client.send(request[:end])
            await asyncio.sleep(pause_s)
            await client.send(request[end:])
            assert await client.answer() == (200, hashlib.sha256(body).hexdigest().encode())


async def test_many_upgrades_in_one_piece() -> None:
    request = _post(b"12345").replace(b"host: a\r\n", b"host: a\r\n" + _UPGRADE)
    async with _serving(_digest) as port, _client(port) as client:
        sending = asyncio.create_task(client.send(request * 1500))
        for _ in range(1500):
            assert await client.answer() == (200, hashlib.sha256(b"12345").hexdigest().encode())
        await sending


async def test_an_upgrade_with_chunks_is_refused() -> None:
    async with _serving(_digest) as port, _client(port) as client:
        await client.send(_CHUNKED.replace(b"host: a\r\n", b"host: a\r\n" + _UPGRADE) + b"0\r\n\r\n")
        status, body = await client.answer()
        assert (status, b"leave Upgrade out" in body) == (400, True)


async def test_tiny_chunks_come_as_few_messages() -> None:
    messages: list[int] = []

    async def count(scope: Any, receive: Any, send: Any) -> None:
        message = {"more_body": True}
        while message["more_body"]:
            message = await receive()
            messages.append(len(message["body"]))
        await _say(send, b"%d" % sum(messages))

    async with _serving(count) as port, _client(port) as client:
        await client.send(_post(b"ab" * 50_000, 2))
        assert await client.answer() == (200, b"100000")
    assert len(messages) < 500


@pytest.mark.parametrize("size", [10, 100_000])
async def test_what_comes_before_a_head_does_not_count_as_one(size: int) -> None:
    body = random.Random(size).randbytes(size)
    count = max(2, 200_000 // size)
    async with _serving(_digest, Limits(max_header_bytes=1024)) as port, _client(port) as client:
        sending = asyncio.create_task(client.send(_post(body) * count + _post(body)[:9]))
        for _ in range(count):
            assert await client.answer() == (200, hashlib.sha256(body).hexdigest().encode())
        await sending
        await client.send(_post(body)[9:])
        assert await client.answer() == (200, hashlib.sha256(body).hexdigest().encode())
