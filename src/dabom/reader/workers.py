"""The worker processes and their permits: bounded, killed when late or when nobody waits any more."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import msgspec

from dabom.errors import InvalidMedia
from dabom.reader.findings import Reading

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from dabom.reader.findings import Job
    from dabom.reader.settings import ReaderSettings


class Workers:
    """Runs jobs in at most `settings.workers` processes, which are used again."""

    def __init__(self, settings: ReaderSettings) -> None:
        self._settings = settings
        self._permits = asyncio.Semaphore(settings.workers)
        self._idle: list[Process] = []
        self._busy: set[Process] = set()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Reading)

    @property
    def busy(self) -> int:
        """Processes that are at work."""
        return len(self._busy)

    async def start(self) -> None:
        """Start every process ahead of the first job: each needs about a second to load its models."""
        while len(self._idle) < self._settings.workers:
            self._idle.append(await self._launch())

    async def read(self, job: Job) -> Reading:
        """The reading of a job. Raises InvalidMedia when it takes too long or ends its process.

        When the caller is cancelled the process is killed, so that its place is free at once.
        """
        async with self._permits:
            process = await self._take()
            self._busy.add(process)
            done = False
            try:
                found = await asyncio.wait_for(self._ask(process, job), self._settings.time_limit_s)
                done = True
                return found
            except TimeoutError as fault:
                limit = self._settings.time_limit_s
                raise InvalidMedia(f"media could not be read within the limit of {limit:g} s") from fault
            except (asyncio.IncompleteReadError, ConnectionError, BrokenPipeError) as fault:
                raise InvalidMedia("media ended the decoder") from fault
            finally:
                self._busy.discard(process)
                if done:
                    self._idle.append(process)
                else:
                    await asyncio.shield(_end(process))

    async def close(self) -> None:
        """End all processes."""
        for process in [*self._idle, *self._busy]:
            await _end(process)
        self._idle.clear()

    async def _take(self) -> Process:
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
            await _end(process)
        return await self._launch()

    async def _launch(self) -> Process:
        command = [
            sys.executable,
            "-m",
            "dabom.reader.worker",
            "--max-bytes",
            str(self._settings.max_worker_bytes),
        ]
        if self._settings.whisper_model is not None:
            command += ["--whisper-model", str(self._settings.whisper_model)]
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)

    async def _ask(self, process: Process, job: Job) -> Reading:
        to, back = process.stdin, process.stdout
        if to is None or back is None:
            raise ConnectionError("worker has no pipes")
        body = self._encoder.encode(job)
        to.write(len(body).to_bytes(4, "big"))
        to.write(body)
        await to.drain()
        size = int.from_bytes(await back.readexactly(4), "big")
        return self._decoder.decode(await back.readexactly(size))


async def _end(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    await process.wait()
