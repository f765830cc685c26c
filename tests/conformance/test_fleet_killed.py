"""A vLLM of the example fleet that dies at work, before the first byte of its answer."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.conformance.conftest import LARGE, MLX, SMALL, TEXT, Servers, told_by
from tests.example_fleet import example_fleet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conformance.conftest import Media
    from tests.example_fleet import Answer, ExampleFleet

pytestmark = pytest.mark.conformance


@pytest.fixture
def mortal(
    servers: Servers, serve_hearing: Callable[[], Any], tmp_path: Path
) -> Iterator[tuple[ExampleFleet, str, int]]:
    """A fleet whose first server is its own: its URL and process id."""
    with serve_hearing() as (url, pid):
        upstreams = Servers(url, servers.seeing).upstreams()
        with example_fleet(tmp_path, upstreams, health={"probe_interval_s": 1}) as fleet:
            yield fleet, url, pid


@pytest.mark.parametrize("part", ["engine", "all"])
async def test_what_it_was_asked_is_answered_by_the_next(
    mortal: tuple[ExampleFleet, str, int], exact_media: Media, part: str
) -> None:
    fleet, url, pid = mortal
    picture = exact_media.part("p640x360.png")
    asking = asyncio.create_task(_ask(fleet, "auto", picture, max_tokens=300, ignore_eos=True))
    await _until(lambda: told_by(url, "vllm:num_requests_running"))
    _kill(pid, part)
    answer = await asking
    assert answer.status == 200, answer.body
    first, second, third = answer.hops
    assert (first, third) == ("precise;reason=auto", f"{SMALL};status=200")
    assert second in {f"{LARGE};failed=http_500", f"{LARGE};failed=upstream_broken"}
    assert answer.usage["completion_tokens"] == 300
    record = await fleet.record(answer)
    assert (record["hops"], record["upstream"], record["status"]) == ([second], SMALL, 200)
    code = second.rpartition("=")[2]
    assert await fleet.metric("dabom_fallbacks_total", route="precise", upstream=LARGE, code=code) == 1
    await _all_goes_to_the_other(fleet, picture)


async def _all_goes_to_the_other(fleet: ExampleFleet, picture: Any) -> None:
    """With one hop while it is not known to be down, and then at once, streamed too."""

    async def down() -> bool:
        return await fleet.metric("dabom_upstream_healthy", upstream=LARGE) == 0

    await _until(down)
    for stream in (False, True):
        answer = await _ask(fleet, "auto", picture, stream=stream)
        assert answer.status == 200
        assert answer.hops == ["precise;reason=auto", f"{SMALL};status=200"]
    text = await _ask(fleet, "auto")
    assert text.status == 200
    assert text.hops[-1] == f"{TEXT};status=200"
    alone = await _ask(fleet, MLX)
    assert (alone.status, alone.error["code"]) == (502, "upstream_unreachable")


async def _ask(fleet: ExampleFleet, model: str, *parts: Any, **more: Any) -> Answer:
    content = [*parts, {"type": "text", "text": "What is it?"}]
    fixed = {"model": model, "temperature": 0, "max_tokens": 4}
    return await fleet.post({**fixed, "messages": [{"role": "user", "content": content}], **more})


def _kill(pid: int, part: str) -> None:
    """The engine's process, or all of them at once."""
    server = psutil.Process(pid)
    if part == "all":
        os.killpg(pid, signal.SIGKILL)
        return
    engines = [one for one in server.children() if "EngineCore" in " ".join(one.cmdline())]
    assert engines
    engines[0].kill()


async def _until(holds: Callable[[], Any], within_s: float = 30) -> None:
    end = time.monotonic() + within_s
    while not await holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)
