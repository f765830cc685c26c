"""`dabom serve` as a child process, started for each test and gone after it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from pathlib import Path

_OURS = ("VLLM_", "DABOM_", "MAX_BATCH_")
_START_S = 40.0
_LISTENS = re.compile(rb"dabom listens on http://127\.0\.0\.1:(\d+)")


@dataclass
class Served:
    """A gateway in its own process."""

    child: asyncio.subprocess.Process
    log: Path
    port: int = 0

    @property
    def stderr(self) -> bytes:
        """What it has written to standard error: messages and the request log."""
        return self.log.read_bytes()

    async def says(self, mark: bytes, within_s: float = 10) -> None:
        """Wait until standard error holds `mark`."""
        async with asyncio.timeout(within_s):
            while mark not in self.stderr:  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.02)

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.child.send_signal(number)

    async def ended(self, within_s: float = 20) -> int:
        """Wait for the end of the process; its exit code."""
        async with asyncio.timeout(within_s):
            return await self.child.wait()

    def family(self) -> list[psutil.Process]:
        """The processes that it has started."""
        return psutil.Process(self.child.pid).children(recursive=True)

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, path: str, body: bytes | None = None, kind: str = "application/json") -> bytes:
        """All that comes back for one request, head and framing included."""
        reader, writer = await self.open()
        try:
            writer.write(request(path, body, kind))
            async with asyncio.timeout(30):
                return await reader.read()
        finally:
            writer.close()

    async def refuses(self, within_s: float = 10) -> None:
        """Wait until no new connection is accepted."""
        async with asyncio.timeout(within_s):
            while True:
                try:
                    _, writer = await self.open()
                except OSError:
                    return
                writer.close()
                await asyncio.sleep(0.02)


def request(path: str, body: bytes | None = None, kind: str = "application/json") -> bytes:
    """A request after which the connection is closed."""
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "host: gateway", "connection: close"]
    if body is not None:
        lines += [f"content-type: {kind}", f"content-length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + (body or b"")


Serve = Callable[..., AbstractAsyncContextManager[Served]]


@asynccontextmanager
async def _serve(
    folder: Path, *arguments: str, wait: bool = True, **settings: object
) -> AsyncIterator[Served]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    env |= {name: str(value) for name, value in settings.items()}
    log = folder / "stderr"
    with log.open("wb") as file:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dabom.cli", "serve", "--port", "0", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=file,
            env=env,
            cwd=folder,
        )
    served = Served(child, log)
    try:
        if wait:
            await _wait_until_it_listens(served)
        yield served
    finally:
        family = served.family() if child.returncode is None else []
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()


async def _wait_until_it_listens(served: Served) -> None:
    async with asyncio.timeout(_START_S):
        while not (found := _LISTENS.search(served.stderr)):
            assert served.child.returncode is None, f"the gateway did not start: {served.stderr.decode()}"
            await asyncio.sleep(0.02)
    served.port = int(found[1])


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """`async with serve(VLLM_BASE_URL=upstream.url) as served`: the command in an empty folder."""

    @asynccontextmanager
    async def start(*arguments: str, **settings: object) -> AsyncIterator[Served]:
        async with _serve(tmp_path, *arguments, **settings) as served:  # type: ignore[arg-type]
            yield served

    return start


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No setting from outside; the folder that the test runs in."""
    for name in list(os.environ):
        if name.startswith(_OURS):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path
