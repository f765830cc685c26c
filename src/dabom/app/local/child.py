"""One server as a child process: started, waited for, started again when it dies, ended."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dabom.errors import ConfigError

if TYPE_CHECKING:
    from asyncio.subprocess import Process

_STOP_TIMEOUT_S = 5.0
_POLL_S = 0.05
_PROBE_S = 2.0
_REST_S = 1.0
_LONGEST_REST_S = 30.0
_LIVED_LONG_S = 60.0
_KEPT_LINES = 8
_LONGEST_LINE = 400
_STAMP = re.compile(r"^[\d.]{10,} [A-Z] +")
"""What llama.cpp puts in front of each line: a time and a level."""


@dataclass(frozen=True)
class Child:
    """What is started: `python -m MODULE --port N ARGUMENTS`. Equal ones are the same server.

    It is ready when `ready_path` answers 200, or when it listens if there is no path. With `quiet` what it
    prints is kept, and the last lines are told when it dies; else it goes where the gateway's messages go.
    """

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    ready_path: str = ""
    ready_within_s: float = 60
    quiet: bool = False


class Keeper:
    """Runs a child on a loopback port, the same one whenever it is started again."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self._port = _free_port()
        self._keeping: asyncio.Task[None] | None = None
        self._last: deque[str] = deque(maxlen=_KEPT_LINES)
        self._deaths = 0
        self._was_ready = False

    @property
    def url(self) -> str:
        """The OpenAI-compatible base."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def _fails_at_once(self) -> bool:
        """Whether a death is the end: its words tell why, and another try would be the same."""
        return self.child.quiet and not self._was_ready

    async def start(self) -> None:
        """Return when it is ready. Raises `ConfigError` when it dies or takes too long; then it stops."""
        self._keeping = asyncio.create_task(self._keep())
        try:
            async with asyncio.timeout(self.child.ready_within_s):
                while not await self._ready():
                    if self._deaths and self._fails_at_once:
                        raise ConfigError(f"{self.child.name} did not start: {self._words()}")
                    await asyncio.sleep(_POLL_S)
            self._was_ready = True
        except TimeoutError:
            await self.stop()
            raise ConfigError(
                f"{self.child.name} did not start in {self.child.ready_within_s:g} s; "
                f"run `python -m {self.child.module}` to see why"
            ) from None
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ask it to end; kill it when it does not."""
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping

    async def _keep(self) -> None:
        loop, rest_s = asyncio.get_running_loop(), _REST_S
        while True:
            begun = loop.time()
            code = await self._run()
            self._deaths += 1
            if not self._fails_at_once:
                sys.stderr.write(f"dabom: {self.child.name} ended with {code}; it is started again\n")
            rest_s = _REST_S if loop.time() - begun > _LIVED_LONG_S else min(rest_s * 2, _LONGEST_REST_S)
            await asyncio.sleep(rest_s if self._deaths > 1 else _REST_S)

    async def _run(self) -> int:
        """One life."""
        # a session of its own: Ctrl-C in a terminal is for the gateway, which ends its children itself
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self.child.module, "--port", str(self._port), *self.child.arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL if self.child.quiet else None,
            stderr=asyncio.subprocess.PIPE if self.child.quiet else None,
            start_new_session=True,
        )
        reading = asyncio.create_task(self._read(process))
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                await _stop(process)
            await asyncio.wait([reading], timeout=_PROBE_S)
            reading.cancel()

    async def _read(self, process: Process) -> None:
        if process.stderr is None:
            return
        with suppress(ValueError):  # of a line without an end
            async for line in process.stderr:
                self._last.append(line.decode(errors="replace").strip())

    def _words(self) -> str:
        said = (_STAMP.sub("", line) for line in self._last)
        return " | ".join(line[:_LONGEST_LINE] for line in said if line) or "it said nothing"

    async def _ready(self) -> bool:
        try:
            async with asyncio.timeout(_PROBE_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                try:
                    if not self.child.ready_path:
                        return True
                    head = f"GET {self.child.ready_path} HTTP/1.1\r\nhost: dabom\r\nconnection: close\r\n\r\n"
                    writer.write(head.encode())
                    return b" 200 " in await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False


async def _stop(process: Process) -> None:
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
