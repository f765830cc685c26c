"""Clients that leave, and a vLLM that is overloaded, stopped or killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from typing import Any

import aiohttp
import psutil
import pytest

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


async def read_stream(pair: Any, body: Any, after_first_event: Any) -> bytes:
    """The rest of a stream through the gateway, from its first event on."""
    octets = json.dumps({**body, "stream": True}).encode()
    headers = {"content-type": "application/json"}
    url = f"{pair.gateway}/v1/chat/completions"
    async with aiohttp.request("POST", url, data=octets, headers=headers) as answer:
        assert answer.status == 200
        await answer.content.readuntil(b"\n\n")
        after_first_event()
        return await answer.content.read()


async def test_overload_and_sigterm(start: Any, request_of: Any) -> None:
    """A full queue is told as vLLM tells it. On SIGTERM vLLM leaves a stream open and silent."""
    flags = ("--max-num-queued-reqs", "2")
    settings = {"VLLM_CONCURRENCY": "64", "DABOM_IDLE_TIMEOUT_S": "5"}
    with start("qwen3_vl", *flags, **settings) as (pair, pid):
        body = request_of("x", max_tokens=1000, ignore_eos=True)
        answers = await asyncio.gather(*(pair.post(pair.gateway, body) for _ in range(24)))
        assert {answer.status for answer in answers} == {200, 503}
        refused = next(answer for answer in answers if answer.status == 503)
        assert refused.json["error"]["type"] == "Service Unavailable"

        rest = await read_stream(pair, request_of("x", **LONG), lambda: os.kill(pid, signal.SIGTERM))
        assert b"[DONE]" not in rest
        last = [line for line in rest.split(b"\n\n") if line.strip()][-1]
        told = json.loads(last.split(b"data: ", 1)[1])
        print(told)  # noqa: T201 - what a real server led to
        assert told["error"]["code"] in {"idle_timeout", "upstream_broken"}


async def test_killed_engine(start: Any, request_of: Any) -> None:
    """vLLM tells the error inside the stream, then ends; the next request finds nobody."""
    with start("qwen3_vl") as (pair, pid):

        def kill_engine() -> None:
            children = psutil.Process(pid).children()
            engines = [child for child in children if "EngineCore" in " ".join(child.cmdline())]
            assert engines
            engines[0].kill()

        rest = await read_stream(pair, request_of("x", **LONG), kill_engine)
        print(rest[-400:])  # noqa: T201 - what a real server led to
        assert b'"error"' in rest
        end = time.monotonic() + 20
        while (answer := await pair.post(pair.gateway, request_of("hi"))).status != 502:
            assert time.monotonic() < end
            await asyncio.sleep(0.2)
        assert answer.json["error"]["code"] == "upstream_unreachable"
