from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dabom.errors import InvalidMedia
from dabom.reader import ReaderApp, ReaderSettings
from dabom.reader.findings import Job, MediaPart
from dabom.reader.workers import Workers

if TYPE_CHECKING:
    from collections.abc import MutableMapping

SAMPLES = Path(__file__).parents[2] / "samples"


def uri(name: str, mime: str) -> str:
    return f"data:{mime};base64," + base64.b64encode((SAMPLES / name).read_bytes()).decode()


def slow_job() -> Job:
    """Some minutes of work."""
    return Job([MediaPart("video", uri("broadcast.mp4", "video/mp4"))] * 30, "ko", fps=60.0, sound_asked=True)


def quick_job() -> Job:
    return Job([MediaPart("picture", uri("caption.png", "image/png"))], "ko")


async def until_busy(busy: Any) -> None:
    while not busy():  # noqa: ASYNC110 - the product has no event to wait for here
        await asyncio.sleep(0.02)


async def test_a_process_is_used_again() -> None:
    workers = Workers(ReaderSettings(workers=1))
    first, second = await workers.read(quick_job()), await workers.read(quick_job())
    await workers.close()
    assert first == second
    assert "서울 첫눈" in first.content
    assert first.media_tokens == 240


async def test_slow_media_are_given_up_and_the_place_is_free_again() -> None:
    workers = Workers(ReaderSettings(workers=1, time_limit_s=1.0))
    with pytest.raises(InvalidMedia, match="within the limit of 1 s"):
        await workers.read(slow_job())
    assert workers.busy == 0
    await workers.close()


async def test_a_dead_process_fails_its_request_alone() -> None:
    workers = Workers(ReaderSettings(workers=1))
    asking = asyncio.create_task(workers.read(slow_job()))
    await until_busy(lambda: workers.busy)
    for process in workers._busy:
        process.kill()
    with pytest.raises(InvalidMedia, match="ended the decoder"):
        await asking
    assert "서울" in (await workers.read(quick_job())).content
    await workers.close()


async def test_a_cancelled_caller_frees_the_place() -> None:
    workers = Workers(ReaderSettings(workers=1))
    asking = asyncio.create_task(workers.read(slow_job()))
    await until_busy(lambda: workers.busy)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert workers.busy == 0
    assert "서울" in (await workers.read(quick_job())).content
    await workers.close()


async def test_a_client_that_leaves_frees_the_place() -> None:
    app = ReaderApp(ReaderSettings(workers=1))
    part = {"type": "video_url", "video_url": {"url": uri("broadcast.mp4", "video/mp4")}}
    body = {
        "messages": [{"role": "user", "content": [part] * 20}],
        "media_io_kwargs": {"video": {"fps": 60}},
        "mm_processor_kwargs": {"use_audio_in_video": True},
    }
    sent: list[MutableMapping[str, Any]] = []
    left = asyncio.Event()
    received = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        if received:
            return received.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": []}
    serving = asyncio.create_task(app(scope, receive, send))
    await until_busy(lambda: app.busy)
    left.set()
    await serving
    assert app.busy == 0
    assert sent == []
    await app.close()
