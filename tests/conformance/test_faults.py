"""Clients that leave, and a vLLM that is overloaded, stopped or killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.conformance

FREED_WITHIN_S = 1.0  # 0.5 s for the gateway; vLLM's own counter is behind by a step
LONG = {"max_tokens": 3500, "ignore_eos": True}


async def wait_running(pair: Any, count: int, within_s: float) -> None:
    end = time.monotonic() + within_s
    while (found := await pair.running()) != count:
        assert time.monotonic() < end, f"vLLM works on {found:g} requests, not {count}"
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_the_slot(
    vl: Any, media: Any, request_of: Any, stream: bool
) -> None:
    await wait_running(vl, 0, 10)
    body = request_of(["Describe.", media.image()], stream=stream, **LONG)
    asking = asyncio.create_task(vl.post(vl.gateway, body))
    await wait_running(vl, 1, 10)
    assert not asking.done()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await wait_running(vl, 0, FREED_WITHIN_S)


async def test_a_client_that_leaves_a_batch_frees_its_slots(vl: Any, request_of: Any) -> None:
    await wait_running(vl, 0, 10)
    items = [{"id": str(number), "body": request_of("Describe.", **LONG)} for number in range(8)]
    asking = asyncio.create_task(vl.post(vl.gateway, {"items": items}, "/chat/batch"))
    await wait_running(vl, 4, 10)  # the permits of the gateway
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await wait_running(vl, 0, FREED_WITHIN_S)


@dataclass(frozen=True)
class Rest:
    """What came of a stream after its first event, and whether it ended in order."""

    octets: bytes
    ended: bool

    @property
    def last(self) -> Any:
        events = [event for event in self.octets.split(b"\n\n") if event.startswith(b"data: {")]
        return json.loads(events[-1].removeprefix(b"data: "))

    @property
    def done(self) -> bool:
        return b"data: [DONE]" in self.octets


async def read_stream(pair: Any, body: Any, after_first_event: Callable[[], None]) -> Rest:
    octets = json.dumps({**body, "stream": True}).encode()
    headers = {"content-type": "application/json"}
    url = f"{pair.gateway}/v1/chat/completions"
    pieces = []
    async with aiohttp.request("POST", url, data=octets, headers=headers) as answer:
        assert answer.status == 200
        await answer.content.readuntil(b"\n\n")
        after_first_event()
        try:
            while piece := await answer.content.readany():
                pieces.append(piece)
        except aiohttp.ClientPayloadError:
            return Rest(b"".join(pieces), ended=False)
    return Rest(b"".join(pieces), ended=True)


@pytest.fixture(scope="module")
def doomed(start: Any) -> Iterator[tuple[Any, int]]:
    """A vLLM with a short queue, for the two tests below: the second stops it."""
    flags = ("--max-num-queued-reqs", "2")
    with start("qwen3_vl", *flags, VLLM_CONCURRENCY="64", DABOM_IDLE_TIMEOUT_S="5") as pair_and_pid:
        yield pair_and_pid


async def test_overload(doomed: Any, request_of: Any) -> None:
    """A full queue is told as vLLM tells it."""
    pair, _ = doomed
    body = request_of("x", max_tokens=1000, ignore_eos=True)
    answers = await asyncio.gather(*(pair.post(pair.gateway, body) for _ in range(24)))
    assert {answer.status for answer in answers} == {200, 503}
    refused = next(answer for answer in answers if answer.status == 503)
    assert refused.json["error"]["type"] == "Service Unavailable"


async def test_sigterm(doomed: Any, request_of: Any) -> None:
    """vLLM stops its engine and either leaves the stream open and silent, or says "abort" and ends it."""
    pair, pid = doomed
    rest = await read_stream(pair, request_of("x", **LONG), lambda: os.kill(pid, signal.SIGTERM))
    seen_on_vllm(f"SIGTERM: done={rest.done} ended={rest.ended} {rest.last}")
    if rest.done:
        assert rest.last["choices"][0]["finish_reason"] == "abort"
    else:
        assert rest.last["error"]["code"] in {"idle_timeout", "upstream_broken"}
    await wait_unreachable(pair, request_of)


async def test_killed_engine(start: Any, request_of: Any) -> None:
    """vLLM tells the error inside the stream and says [DONE]; the gateway keeps that from the client."""
    with start("qwen3_vl") as (pair, pid):

        def kill_engine() -> None:
            children = psutil.Process(pid).children()
            engines = [child for child in children if "EngineCore" in " ".join(child.cmdline())]
            assert engines
            engines[0].kill()

        rest = await read_stream(pair, request_of("x", **LONG), kill_engine)
        seen_on_vllm(f"killed engine: done={rest.done} ended={rest.ended} {rest.last}")
        assert not rest.done
        assert "error" in rest.last
        await wait_unreachable(pair, request_of)


def seen_on_vllm(what: str) -> None:
    """For the report of the run."""
    print(f"\nseen: {what}", file=sys.stderr)  # noqa: T201


async def wait_unreachable(pair: Any, request_of: Any) -> None:
    end = time.monotonic() + 20
    while (answer := await pair.post(pair.gateway, request_of("hi"))).status != 502:
        assert time.monotonic() < end
        await asyncio.sleep(0.2)
    assert answer.json["error"]["code"] == "upstream_unreachable"
