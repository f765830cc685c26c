"""The process and its standard streams, which an operator may have closed, filled or left unread."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

from dabom.testing import ScriptedUpstream, chat_answer, free_port, json_reply

if TYPE_CHECKING:
    from pathlib import Path

    from tests.app.conftest import Serve

_GET = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n"
_CHAT = b'{"messages":[]}'


async def _read(port: int, octets: bytes, mark: bytes, within_s: float = 20) -> bytes:
    """Send, and read until the answer holds `mark`; asks again while nobody listens."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                await asyncio.sleep(0.05)
        writer.write(octets)
        answer = b""
        while mark not in answer and (more := await reader.read(65_536)):
            answer += more
        writer.close()
        return answer


async def _start(
    folder: Path, stderr: int, shell: str = "", **more: str
) -> tuple[asyncio.subprocess.Process, int]:
    port = free_port()
    command = f'exec "$0" -m dabom.cli serve --port {port} {shell}'
    env = {**os.environ, "VLLM_BASE_URL": "http://127.0.0.1:9/v1", **more}
    child = await asyncio.create_subprocess_exec(
        "sh", "-c", command, sys.executable, stderr=stderr, env=env, cwd=folder
    )
    return child, port


async def _end(child: asyncio.subprocess.Process) -> int:
    try:
        child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            return await child.wait()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def test_closed_streams_are_no_hindrance(tmp_path: Path) -> None:
    child, port = await _start(tmp_path, asyncio.subprocess.DEVNULL, "0<&- 1>&- 2>&-")
    try:
        for _ in range(3):
            answer = await _read(port, _GET, b"true}")
            assert answer.startswith(b"HTTP/1.1 200")
            assert b"request_id" not in answer
    finally:
        assert await _end(child) == 0


async def test_a_log_that_nobody_reads_does_not_hinder_the_end(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    child, port = await _start(tmp_path, theirs)
    os.close(theirs)
    try:
        for _ in range(6):
            await _read(port, _GET * 200 + _GET.replace(b"healthz", b"end"), b"there is no /end")
        assert (await _read(port, _GET, b"true}")).startswith(b"HTTP/1.1 200")
    finally:
        assert await _end(child) == 0
        os.close(ours)


async def test_a_full_disk_loses_lines_and_counts_them(serve: Serve) -> None:
    async with (
        ScriptedUpstream(json_reply(chat_answer())) as upstream,
        serve(VLLM_BASE_URL=upstream.url, DABOM_LOG_FILE="/dev/full") as served,
    ):
        for _ in range(5):
            assert b" 200 OK" in await served.ask("/chat", _CHAT)
        lost = 0.0
        async with asyncio.timeout(10):
            while lost < 5:
                page = await served.ask("/metrics")
                lost = sum(
                    float(line.split()[1])
                    for line in page.splitlines()
                    if line.startswith(b"dabom_log_lines")
                )
        served.signal()
        assert await served.ended() == 0
