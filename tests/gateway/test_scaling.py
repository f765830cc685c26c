"""Processes that scale pictures, on the loop of the gateway: a caller that leaves never blocks the next."""

from __future__ import annotations

import asyncio
import base64
import io
import random
from contextlib import suppress

import psutil
from PIL import Image

from dabom.media.worker import Job
from dabom.media.workers import PictureWorkers

WITHIN_S = 20


def noise(side: int) -> bytes:
    out = io.BytesIO()
    Image.effect_noise((side, side), 90).convert("RGB").save(out, "PNG", compress_level=0)
    return base64.b64encode(out.getvalue())


async def scale(workers: PictureWorkers, text: bytes, max_pixels: int) -> tuple[int, int]:
    pieces = [memoryview(text)[at : at + 100_000] for at in range(0, len(text), 100_000)]
    done, _ = await workers.scale(Job(len(text), max_pixels, 1, 10**8), pieces)
    return done.sides


def processes() -> int:
    return sum("dabom.media.worker" in " ".join(one.cmdline()) for one in psutil.Process().children())


async def test_a_caller_that_leaves_when_the_answer_is_half_read() -> None:
    workers, text = PictureWorkers(1, 30), noise(900)
    large = 800 * 800  # an answer of two megabytes, which is more than the pipe and its reader hold
    assert await scale(workers, text, large) == (800, 800)
    process = workers._idle[0]
    reader = process.stdout
    assert reader is not None
    task = asyncio.create_task(scale(workers, text, large))
    async with asyncio.timeout(WITHIN_S):
        while not reader._paused:  # type: ignore[attr-defined]  # noqa: ASYNC110 - a flag of asyncio's own
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert await scale(workers, text, 10_000) == (100, 100)
        await workers.close()
    assert processes() == 0


async def test_callers_that_leave_at_any_time_leave_no_process_behind() -> None:
    chance, text = random.Random(7), noise(500)
    workers = PictureWorkers(1, 30)
    async with asyncio.timeout(2 * WITHIN_S):
        for _ in range(30):
            task = asyncio.create_task(scale(workers, text, 400 * 400))
            for _ in range(chance.randrange(40)):
                await asyncio.sleep(0)
            await asyncio.sleep(chance.choice((0, 0, 0.001, 0.01, 0.05)))
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert processes() <= 1
        assert await scale(workers, text, 10_000) == (100, 100)
        await workers.close()
    assert processes() == 0
