"""What may interrupt a request from outside, and that it interrupts nothing else."""

# ruff: noqa: PT012  the block that a guard ends is what is tested

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

import pytest

from dabom.errors import ClientGone, Draining, FirstByteTimeout, IdleTimeout, TotalTimeout
from dabom.gateway.guard import Guard

if TYPE_CHECKING:
    from dabom.gateway.asgi import Message

LONG_S = 60


async def forever() -> bool:
    return await asyncio.Event().wait()


def cancelled() -> int:
    """How often the task that runs has been asked to stop and has not."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def test_silence_ends_the_block_with_its_error() -> None:
    began = time.monotonic()
    with pytest.raises(IdleTimeout, match="quiet"):
        async with Guard() as guard:
            guard.limit_silence(0.05, lambda: IdleTimeout("quiet"))
            await forever()
    assert time.monotonic() - began >= 0.049
    assert cancelled() == 0


async def test_a_touch_starts_the_silence_anew() -> None:
    began = time.monotonic()
    with pytest.raises(IdleTimeout):
        async with Guard() as guard:
            guard.limit_silence(0.3, lambda: IdleTimeout(""))
            for _ in range(8):
                await asyncio.sleep(0.05)
                guard.touch()
            last = time.monotonic()
            await forever()
    assert time.monotonic() - last >= 0.299
    assert time.monotonic() - began >= 0.699


async def test_the_total_is_not_moved_by_a_touch() -> None:
    with pytest.raises(TotalTimeout, match=r"0\.1 s"):
        async with Guard() as guard:
            guard.limit_total(0.1)
            guard.limit_silence(LONG_S, lambda: IdleTimeout(""))
            while True:
                guard.touch()
                await asyncio.sleep(0.005)


async def test_of_two_clocks_that_ring_together_the_total_counts() -> None:
    with pytest.raises(TotalTimeout):
        async with Guard() as guard:
            guard.limit_total(0.05)
            guard.limit_silence(0.05, lambda: FirstByteTimeout(""))
            await forever()


async def test_a_later_limit_replaces_an_earlier_one() -> None:
    with pytest.raises(IdleTimeout, match="second"):
        async with Guard() as guard:
            guard.limit_silence(LONG_S, lambda: IdleTimeout("first"))
            guard.limit_silence(0.03, lambda: IdleTimeout("second"))
            await forever()
    async with Guard() as guard:
        guard.limit_silence(0.02, lambda: IdleTimeout("short"))
        guard.limit_silence(LONG_S, lambda: IdleTimeout("long"))
        await asyncio.sleep(0.06)


async def test_unlimit_stops_all_clocks() -> None:
    async with Guard() as guard:
        guard.limit_total(0.02)
        guard.limit_silence(0.02, lambda: IdleTimeout(""))
        guard.unlimit()
        await asyncio.sleep(0.06)
        guard.limit_total(LONG_S)
        await asyncio.sleep(0.01)


async def test_elapsed_counts_from_the_total() -> None:
    async with Guard() as guard:
        await asyncio.sleep(0.05)
        before = time.monotonic()
        guard.limit_total(LONG_S)
        await asyncio.sleep(0.02)
        assert 18 <= guard.elapsed_ms() <= (time.monotonic() - before) * 1000 + 1


async def test_the_first_reason_counts() -> None:
    with pytest.raises(Draining):
        async with Guard() as guard:
            guard.interrupt(Draining("stop"))
            guard.interrupt(ClientGone("left"))
            await forever()
    assert cancelled() == 0


async def test_a_client_that_leaves_ends_the_block() -> None:
    left = asyncio.Event()

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    with pytest.raises(ClientGone):
        async with Guard() as guard:
            guard.watch(receive)
            asyncio.get_running_loop().call_soon(left.set)
            await forever()


async def test_nothing_rings_after_the_end() -> None:
    async with Guard() as guard:
        guard.limit_total(0.02)
        guard.limit_silence(0.02, lambda: IdleTimeout(""))
        guard.limit_pause(0.01)
    guard.interrupt(Draining("too late"))
    await asyncio.sleep(0.05)
    assert cancelled() == 0


async def test_an_interruption_that_meets_the_end_of_the_block_does_not_leak() -> None:
    async with Guard() as guard:
        guard.interrupt(Draining("in the last moment"))
    await asyncio.sleep(0)
    assert cancelled() == 0


async def test_an_interruption_does_not_hide_another_error() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Guard() as guard:
            guard.interrupt(Draining("in the last moment"))
            raise ZeroDivisionError
    await asyncio.sleep(0)
    assert cancelled() == 0


async def test_a_cancellation_from_outside_stays_one() -> None:
    async def guarded() -> None:
        async with Guard() as guard:
            guard.limit_total(LONG_S)
            guard.limit_pause(LONG_S)
            await guard.or_pause(forever())

    task = asyncio.create_task(guarded())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_pause_gives_none_and_counts_anew() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()
    async with Guard() as guard:
        guard.limit_pause(0.04)
        for _ in range(3):
            began = time.monotonic()
            assert await guard.or_pause(queue.get()) is None
            assert time.monotonic() - began >= 0.038
        queue.put_nowait(7)
        assert await guard.or_pause(queue.get()) == 7
    assert cancelled() == 0


async def test_a_pause_while_something_else_is_done_is_no_interruption() -> None:
    async with Guard() as guard:
        guard.limit_pause(0.02)
        await asyncio.sleep(0.08)
        assert await guard.or_pause(asyncio.sleep(0, "here")) == "here"


async def test_pauses_do_not_feed_the_silence() -> None:
    pauses = 0
    with pytest.raises(IdleTimeout):
        async with Guard() as guard:
            guard.limit_silence(0.3, lambda: IdleTimeout(""))
            guard.limit_pause(0.04)
            while True:
                assert await guard.or_pause(forever()) is None
                pauses += 1
    assert 1 <= pauses <= 8


async def test_a_reason_that_meets_a_pause_counts() -> None:
    with pytest.raises(Draining):
        async with Guard() as guard:
            guard.limit_pause(0.03)
            loop = asyncio.get_running_loop()
            ring = guard._ring

            def both() -> None:
                ring()
                ring()
                guard.interrupt(Draining("stop"))

            loop.call_later(0.05, both)
            while True:
                await guard.or_pause(forever())
    assert cancelled() == 0


@pytest.mark.parametrize("seed", range(5))
async def test_no_piece_is_lost_between_pauses(seed: int) -> None:
    """Pauses as short as the gaps between pieces: they meet in every order."""
    dice = random.Random(seed)
    reader = asyncio.StreamReader()

    async def feed() -> None:
        for number in range(150):
            await asyncio.sleep(dice.choice((0, 0.001, 0.002, 0.003)))
            reader.feed_data(b"%03d," % number)
        reader.feed_eof()

    got = b""
    async with asyncio.TaskGroup() as group:
        group.create_task(feed())
        async with Guard() as guard:
            guard.limit_pause(0.002)
            while (piece := await guard.or_pause(reader.read(4))) != b"":
                guard.touch()
                got += piece or b""
    assert got == b"".join(b"%03d," % number for number in range(150))
    assert cancelled() == 0
