"""The built-in upstream as a child process, for a gateway that has no other."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from dabom.errors import ConfigError
from dabom.gateway import UpstreamSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 5.0
_POLL_S = 0.05
_REST_S = 1.0


@asynccontextmanager
async def started_reader(whisper_model: Path | None) -> AsyncIterator[UpstreamSettings]:
    """A reader on a free loopback port; it is started again when it dies, and ends with the block."""
    port = _free_port()
    command = [
        sys.executable,
        "-m",
        "dabom.reader",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--with-parent",
        str(os.getpid()),
    ]
    if whisper_model is not None:
        command += ["--whisper-model", str(whisper_model)]
    keeping = asyncio.create_task(_keep(command))
    try:
        await _wait_until_it_listens(port, keeping)
        yield UpstreamSettings(url=f"http://127.0.0.1:{port}/v1", name="reader")
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping


async def _keep(command: list[str]) -> None:
    while True:
        # a session of its own: Ctrl-C in a terminal is for the gateway, which ends its reader itself
        child = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        try:
            await child.wait()
        finally:
            if child.returncode is None:
                await _stop(child)
        await asyncio.sleep(_REST_S)


async def _stop(child: asyncio.subprocess.Process) -> None:
    child.terminate()
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()


async def _wait_until_it_listens(port: int, keeping: asyncio.Task[None]) -> None:
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            while not keeping.done():
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    return
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        pass
    raise ConfigError("the reader did not start; run `python -m dabom.reader` to see why")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
