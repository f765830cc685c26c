"""The reader that a gateway without an upstream starts: it comes, comes back, and goes with the gateway."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING

import psutil
import pytest

from dabom.reader.settings import MODEL_ID

if TYPE_CHECKING:
    from tests.app.conftest import Serve

_BODY = json.dumps({"model": MODEL_ID, "messages": [{"role": "user", "content": "안녕?"}]}).encode()


async def _until_gone(family: list[psutil.Process], within_s: float = 20) -> None:
    async with asyncio.timeout(within_s):
        while any(map(_lives, family)):  # noqa: ASYNC110 - other processes have no event
            await asyncio.sleep(0.05)


def _lives(one: psutil.Process) -> bool:
    try:
        return one.is_running() and one.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_the_reader_answers_behind_the_gateway(serve: Serve) -> None:
    async with serve() as served:
        assert b" 200 " in (await served.ask("/readyz"))[:20]
        assert b"dabom-reader" in await served.ask("/v1/models")
        text = await served.ask("/chat", _BODY)
        assert b" 200 " in text[:20]
        assert json.loads(text.partition(b"\r\n\r\n")[2])["usage"]["prompt_tokens"] > 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_nothing_is_left_when_the_gateway_ends(serve: Serve, number: signal.Signals) -> None:
    async with serve() as served:
        await served.ask("/chat", _BODY)
        family = served.family()
        assert family
        served.signal(number)
        assert await served.ended(15) == (-9 if number == signal.SIGKILL else 0)
        await _until_gone(family)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_nothing_is_left_when_the_gateway_ends_while_it_starts(
    serve: Serve, number: signal.Signals
) -> None:
    async with serve(wait=False) as served:
        async with asyncio.timeout(30):
            while not (family := served.family()):  # noqa: ASYNC110 - children have no event
                await asyncio.sleep(0.02)
        served.signal(number)
        await served.ended(15)
        await _until_gone(family)


async def test_a_reader_that_dies_is_started_again(serve: Serve) -> None:
    async with serve() as served:
        (reader, *_) = served.family()
        reader.kill()
        async with asyncio.timeout(40):
            while b" 200 " not in (await served.ask("/chat", _BODY))[:20]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert not _lives(reader)
