"""Start a gateway of our own as a child process, and stop it again."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from dabom.client import Client, Clocks
from dabom.errors import StartFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

USUAL_PORT = 8001
_READY_WITHIN_S = 90
_STOP_WITHIN_S = 20


@asynccontextmanager
async def started_gateway(log: Path, port: int | None = None) -> AsyncIterator[str]:
    """The root URL of a gateway that is ready; it is stopped with SIGTERM on leaving.

    Without `port` it takes 8001 when that is free, else any free one. What it prints goes to `log`.
    Raises StartFailed.
    """
    port = port or free_port(USUAL_PORT)
    await asyncio.to_thread(log.parent.mkdir, parents=True, exist_ok=True)
    with await asyncio.to_thread(log.open, "wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dabom.cli", "serve", "--host", "127.0.0.1", "--port", str(port)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        await _wait_ready(process, url, log)
        yield url
    finally:
        await _stop(process)


def free_port(wanted: int = 0) -> int:
    """`wanted` when nobody listens there, else a port that the system has free."""
    for port in (wanted, 0):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as server:
            return int(server.getsockname()[1])
    raise StartFailed("no loopback port is free")


async def _wait_ready(process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    try:
        async with asyncio.timeout(_READY_WITHIN_S), Client(url, clocks=Clocks(first_byte_s=5)) as client:
            while not await client.ready():
                if process.returncode is not None:
                    raise StartFailed(
                        f"the gateway ended with exit code {process.returncode}; its log: {log}"
                    )
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise StartFailed(f"the gateway was not ready within {_READY_WITHIN_S} s; its log: {log}") from None


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_WITHIN_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
