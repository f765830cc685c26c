from __future__ import annotations

import asyncio
import base64
import io
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from dabom.errors import InvalidMedia, MediaTooLarge
from dabom.media.worker import Done, Job
from dabom.media.workers import PictureWorkers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMIT, DECODED = 320 * 180, 100_000_000
GAP_S = 0.02
STEP_S = 0.002


@pytest.fixture
async def workers() -> AsyncIterator[PictureWorkers]:
    found = PictureWorkers(1, time_limit_s=20)
    yield found
    await found.close()


def picture(size: tuple[int, int], kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    noise = Image.effect_noise((size[0] // 8, size[1] // 8), 90).convert("RGB").resize(size)
    noise.save(out, kind, **({"compress_level": 1} if kind == "PNG" else {}))
    return base64.b64encode(out.getvalue())


def job_of(text: bytes) -> Job:
    return Job(len(text), LIMIT, 4, DECODED)


async def scale(workers: PictureWorkers, text: bytes) -> tuple[Done, bytes]:
    pieces = [memoryview(text)[at : at + 100_000] for at in range(0, len(text), 100_000)]
    return await workers.scale(job_of(text), pieces)


async def test_base64_goes_in_and_comes_out(workers: PictureWorkers) -> None:
    for kind in ("PNG", "JPEG"):
        done, text = await scale(workers, picture((640, 360), kind))
        assert (done.was, done.sides) == ((640, 360), (320, 180))
        shown = Image.open(io.BytesIO(base64.b64decode(text, validate=True)))
        assert (shown.size, shown.format) == ((320, 180), kind)


async def test_escapes_of_json_are_undone(workers: PictureWorkers) -> None:
    text = picture((640, 360)).replace(b"/", b"\\/").replace(b"=", b"\\u003d")
    done, _ = await workers.scale(job_of(text), [memoryview(text)])
    assert done.sides == (320, 180)


async def test_a_fault_is_told_and_the_process_goes_on(workers: PictureWorkers) -> None:
    with pytest.raises(InvalidMedia, match="base64"):
        await scale(workers, b"!!!!")
    with pytest.raises(InvalidMedia, match="damaged"):
        await scale(workers, picture((640, 360))[:2000])
    text = picture((640, 360))
    with pytest.raises(MediaTooLarge):
        await workers.scale(Job(len(text), LIMIT, 4, 10), [memoryview(text)])
    done, _ = await scale(workers, picture((640, 360)))
    assert done.sides == (320, 180)


async def test_a_caller_that_leaves_frees_its_place(workers: PictureWorkers) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(scale(workers, picture((3840, 2160))), 0.05)
    done, _ = await asyncio.wait_for(scale(workers, picture((640, 360))), 15)
    assert done.sides == (320, 180)


async def test_a_late_job_is_ended() -> None:
    workers = PictureWorkers(1, time_limit_s=0.01)
    with pytest.raises(InvalidMedia, match="within"):
        await scale(workers, picture((3840, 2160)))
    await workers.close()


async def measure(until: asyncio.Task[None]) -> list[float]:
    """How much later than due the steps of a stream come, in seconds, the largest last."""
    loop = asyncio.get_running_loop()
    gaps = []
    while not until.done():
        began = loop.time()
        await asyncio.sleep(STEP_S)
        gaps.append(loop.time() - began - STEP_S)
    return sorted(gaps)


async def test_a_stream_does_not_wait_for_pictures(workers: PictureWorkers) -> None:
    text = picture((3840, 2160))
    await scale(workers, picture((640, 360)))  # the process is there

    async def pictures() -> None:
        for _ in range(3):
            await scale(workers, text)

    idle = await measure(asyncio.create_task(asyncio.sleep(1)))
    busy = await measure(asyncio.create_task(pictures()))
    # a shared machine stops everybody now and then: the bar holds for all but the few worst steps
    assert busy[int(len(busy) * 0.98)] < idle[int(len(idle) * 0.98)] + GAP_S
