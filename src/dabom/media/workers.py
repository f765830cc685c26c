"""The processes that make pictures smaller: few, started when first needed, ended when late."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import msgspec

from dabom import errors
from dabom.errors import InvalidMedia
from dabom.media.worker import Done, Job

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Iterable

_PIECE_BYTES = 256 * 1024
_LINE_BYTES = 64 * 1024
_CODES = {kind.code: kind for kind in (InvalidMedia, errors.MediaUnsupported, errors.MediaTooLarge)}


class PictureWorkers:
    """At most `count` processes, used again; one job in each at a time. `time_limit_s` is that of a job."""

    def __init__(self, count: int = 1, time_limit_s: float = 30.0) -> None:
        self._permits = asyncio.Semaphore(count)
        self._time_limit_s = time_limit_s
        self._idle: list[Process] = []
        self._busy: set[Process] = set()
        self._starting: set[asyncio.Task[Process]] = set()
        self._closed = False

    async def scale(self, job: Job, pieces: Iterable[memoryview]) -> tuple[Done, bytes]:
        """The smaller picture as base64. `pieces` are `job.size` characters, read when there is room.

        Raises InvalidMedia. When the caller is cancelled the process is ended, so that its place is free.
        """
        async with self._permits:
            process = await self._take()
            self._busy.add(process)
            whole = False
            try:
                async with asyncio.timeout(self._time_limit_s):
                    done, text = await _ask(process, job, pieces)
                whole = True
            except TimeoutError as fault:
                raise InvalidMedia(
                    f"the picture could not be scaled within {self._time_limit_s:g} s"
                ) from fault
            except (asyncio.IncompleteReadError, ConnectionError) as fault:
                raise InvalidMedia("the picture ended its decoder") from fault
            finally:
                self._busy.discard(process)
                if whole:
                    self._idle.append(process)
                else:
                    await asyncio.shield(_end(process))
        if done.fault:
            raise _CODES.get(done.code, InvalidMedia)(done.fault)
        return done, text

    async def close(self) -> None:
        """End all processes."""
        self._closed = True
        if self._starting:
            await asyncio.wait(self._starting)
        for process in self._busy:
            _kill(process)  # whoever waits for it ends it
            await process.wait()
        while self._idle:
            await _end(self._idle.pop())

    async def _take(self) -> Process:
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
            await _end(process)
        starting = asyncio.create_task(_start())
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # one that is cancelled while it starts would be nobody's: the next caller gets it
            starting.add_done_callback(self._keep)
            await asyncio.wait([starting])
            raise

    def _keep(self, started: asyncio.Task[Process]) -> None:
        if not started.cancelled() and started.exception() is None:
            self._idle.append(started.result())
            if self._closed:
                _kill(started.result())


async def _ask(process: Process, job: Job, pieces: Iterable[memoryview]) -> tuple[Done, bytes]:
    to, back = process.stdin, process.stdout
    if to is None or back is None:
        raise ConnectionError("the worker has no pipes")
    to.write(msgspec.json.encode(job) + b"\n")
    for piece in pieces:
        for start in range(0, len(piece), _PIECE_BYTES):
            to.write(piece[start : start + _PIECE_BYTES])
            await to.drain()  # a large picture goes out bit by bit, and streams have their turns in between
    line = await back.readuntil(b"\n")
    done = msgspec.json.decode(line, type=Done)
    return done, await back.readexactly(done.size)


async def _start() -> Process:
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "dabom.media.worker"]
    return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=_LINE_BYTES)


def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


async def _end(process: Process) -> None:
    _kill(process)
    if process.stdin is not None:
        process.stdin.close()
    if process.stdout is not None:
        await process.stdout.read()  # an answer that is half read stops the pipe, and so keeps it open
    await process.wait()
