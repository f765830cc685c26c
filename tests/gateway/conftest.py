"""A real gateway on a real port for each test, and a client that sees the wire."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager as AsyncContext
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import h11
import msgspec
import pytest
import uvloop

from dabom.app import Server, build, load_settings
from dabom.testing import ScriptedUpstream

if TYPE_CHECKING:
    from pathlib import Path

    from dabom.app import Settings
    from dabom.gateway import Gateway
    from dabom.gateway.admission import Permits
    from dabom.testing.upstream import Script

CHAT: dict[str, Any] = {"model": "qwen", "messages": [{"role": "user", "content": "안녕"}]}
WITHIN_S = 10.0
_OURS = ("VLLM_", "DABOM_", "MAX_BATCH_")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that `dabom serve` runs on."""
    return {"uvloop": uvloop.new_event_loop}


@dataclass
class Answer:
    """What came back. `whole` says whether it ended as its framing promised; h11 is the judge."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""
    whole: bool = False

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.json()["error"])


class Wire:
    """One connection to the gateway, byte by byte. One request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=2**20)
        self.answer = Answer(0, [])

    async def send(self, octets: bytes) -> None:
        """Any bytes at all."""
        self._writer.write(octets)
        await self._writer.drain()

    async def request(
        self,
        path: str,
        body: bytes | None = None,
        *,
        method: str = "POST",
        headers: Iterable[tuple[str, str]] = (),
        length: int | None = None,
    ) -> None:
        """Send a request; with `length` the head promises more than `body` holds."""
        lines = [f"{method} {path} HTTP/1.1", "host: gateway"]
        lines += [f"{name}: {value}" for name, value in headers]
        if body is not None and not any(name.lower() == "transfer-encoding" for name, _ in headers):
            lines.append(f"content-length: {len(body) if length is None else length}")
        self.begin(method)
        await self.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b""))

    def begin(self, method: str = "POST") -> None:
        """Forget the last answer and expect the one to a request of this method."""
        if self.answer.status:
            self._parser.start_next_cycle()
        self.answer = Answer(0, [])
        self._parser.send(h11.Request(method=method, target="/", headers=[("host", "gateway")]))
        self._parser.send(h11.EndOfMessage())

    async def head(self, within_s: float = WITHIN_S) -> Answer:
        """Wait for the head."""
        async with asyncio.timeout(within_s):
            while not self.answer.status and await self._step():
                pass
        return self.answer

    async def until(self, mark: bytes, within_s: float = WITHIN_S) -> bytes:
        """Wait until the body holds `mark`; the body so far."""
        async with asyncio.timeout(within_s):
            while mark not in self.answer.body:
                if not await self._step():
                    raise AssertionError(f"the answer ended without {mark!r}: {self.answer}")
        return self.answer.body

    async def rest(self, within_s: float = WITHIN_S) -> Answer:
        """Wait until the answer or the connection ends."""
        async with asyncio.timeout(within_s):
            while await self._step():
                pass
        return self.answer

    async def closed(self, within_s: float = WITHIN_S) -> bytes:
        """Wait until the gateway closes the connection; what it sent until then, raw."""
        async with asyncio.timeout(within_s):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    async def _step(self) -> bool:
        """Take one event or some bytes; False when there is nothing more to come."""
        try:
            event = self._parser.next_event()
        except h11.RemoteProtocolError:
            return False
        if event is h11.NEED_DATA:
            try:
                octets = await self._reader.read(65536)
            except ConnectionResetError:
                return False
            self._parser.receive_data(octets)
        elif isinstance(event, h11.Response):
            names = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers]
            self.answer.status, self.answer.headers = event.status_code, names
        elif isinstance(event, h11.Data):
            self.answer.body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            self.answer.whole = True
            return False
        elif isinstance(event, h11.ConnectionClosed):
            return False
        return True

    def leave(self) -> None:
        """Close with a FIN."""
        self._writer.close()

    def reset(self) -> None:
        """Break off with an RST."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


@asynccontextmanager
async def _open_wire(port: int) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@dataclass
class _LogPipe:
    """The gateway's log, as it is written."""

    text: bytes = b""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def pump(self, reader: asyncio.StreamReader) -> None:
        while octets := await reader.read(65536):
            self.text += octets
            self.news.set()

    @property
    def lines(self) -> list[dict[str, Any]]:
        whole = self.text[: self.text.rfind(b"\n") + 1]
        return [msgspec.json.decode(line) for line in whole.splitlines()]


@dataclass
class RunningGateway:
    """A gateway that listens."""

    url: str
    port: int
    gateway: Gateway
    log: _LogPipe

    @property
    def permits(self) -> Permits:
        """Those of the only upstream."""
        return self.gateway.fleet.upstreams[0].permits

    def wire(self) -> AsyncContext[Wire]:
        """A connection of its own."""
        return _open_wire(self.port)

    async def ask(
        self,
        path: str = "/chat",
        body: bytes | object | None = None,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    ) -> Answer:
        """One request on a connection of its own, and its answer. `body` is encoded unless it is bytes."""
        octets = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        given = list(headers.items() if isinstance(headers, Mapping) else headers)
        if octets is not None and not any(name.lower() == "content-type" for name, _ in given):
            given.append(("content-type", "application/json"))
        async with self.wire() as wire:
            verb = method or ("GET" if octets is None else "POST")
            await wire.request(path, octets, method=verb, headers=given)
            return await wire.rest()

    async def line(self, request_id: str, within_s: float = WITHIN_S) -> dict[str, Any]:
        """The line of the log about one request, as soon as it is written."""
        async with asyncio.timeout(within_s):
            while True:
                self.log.news.clear()
                for line in self.log.lines:
                    if line["request_id"] == request_id:
                        return line
                await self.log.news.wait()

    async def until(self, condition: Callable[[], bool], within_s: float = WITHIN_S) -> None:
        """Wait until something is so inside the gateway, such as `lambda: gw.permits.waiting == 2`."""
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110 - the gateway has no event for what a test may ask
                await asyncio.sleep(0.002)


Run = Callable[..., AsyncContext[RunningGateway]]
Behind = Callable[..., AsyncContext[tuple[ScriptedUpstream, RunningGateway]]]


@asynccontextmanager
async def _log_pipe() -> AsyncIterator[tuple[int, _LogPipe]]:
    ours, theirs = os.pipe()
    reader, log = asyncio.StreamReader(), _LogPipe()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb")
    )
    pumping = asyncio.create_task(log.pump(reader))
    try:
        yield theirs, log
    finally:
        os.close(theirs)
        await pumping
        transport.close()


class _Server(Server):
    """Stops as soon as it is told to; uvicorn looks ten times a second, and there are many tests."""

    async def main_loop(self) -> None:
        await self.on_tick(0)
        while not self.should_exit:  # noqa: ASYNC110 - a flag, as in uvicorn
            await asyncio.sleep(0.005)


@asynccontextmanager
async def _listening(gateway: Gateway, settings: Settings) -> AsyncIterator[int]:
    server = _Server(gateway, settings, settings.gateway().clocks)
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(WITHIN_S):
            while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event
                await asyncio.sleep(0.001)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        gateway.cut()
        server.should_exit = True
        ended, _ = await asyncio.wait([serving], timeout=WITHIN_S)
        server.force_exit = True
        await serving
        assert ended, "the server did not stop"


@asynccontextmanager
async def _run(upstream_url: str | None = None, **given: Any) -> AsyncIterator[RunningGateway]:
    async with AsyncExitStack() as stack:
        settings = load_settings(None, base_url=upstream_url, **{"port": 0, **given})
        descriptor, log = await stack.enter_async_context(_log_pipe())
        gateway = build(settings.gateway(), descriptor)
        port = await stack.enter_async_context(_listening(gateway, settings))
        running_gateway = RunningGateway(f"http://127.0.0.1:{port}", port, gateway, log)
        yield running_gateway
        await running_gateway.until(lambda: not gateway.running)
        for upstream in gateway.fleet.upstreams:
            assert (upstream.permits.held, upstream.permits.waiting) == (0, 0), "a permit was lost"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(_OURS):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def running_gateway() -> Run:
    """`async with running_gateway(upstream.url, concurrency=1) as gw`: a real server in this process.

    Settings have the names of `dabom.app.Settings`. When the block ends, nothing may run any more and every
    permit must be back.
    """
    return _run


@pytest.fixture
def behind(running_gateway: Run) -> Behind:
    """`async with behind(script, concurrency=1) as (upstream, gw)`: a scripted upstream and its gateway.

    `upstream` holds further arguments of `ScriptedUpstream`.
    """

    @asynccontextmanager
    async def start(
        script: Script | None = None, *, upstream: Mapping[str, Any] | None = None, **settings: Any
    ) -> AsyncIterator[tuple[ScriptedUpstream, RunningGateway]]:
        async with (
            ScriptedUpstream(script, **(upstream or {})) as scripted,
            running_gateway(scripted.url, **settings) as gw,
        ):
            yield scripted, gw

    return start


@pytest.fixture
def chat() -> dict[str, Any]:
    """The body of a small request."""
    return dict(CHAT)


@pytest.fixture
def stream() -> dict[str, Any]:
    """The body of a small request for a stream."""
    return {**CHAT, "stream": True}
