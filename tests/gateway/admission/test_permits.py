"""The asyncio shell: never too many, none lost, whoever is cancelled or late, whenever that is."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dabom.errors import QueueFull, QueueTimeout
from dabom.gateway.admission import SMALLEST, AdmissionSettings, Bodies, Claim, Permits, Priority

_MOVES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["ask", "ask briefly"]), st.integers(0, 8)),
        st.tuples(st.sampled_from(["cancel", "finish"]), st.integers(0, 30)),
        st.tuples(st.just("turn"), st.integers(1, 3)),
    ),
    max_size=60,
)


class Crowd:
    """Tasks around one pool, moved step by step."""

    def __init__(self, limit: int, budget: int | None = None) -> None:
        self.permits = Permits(limit, budget)
        self.tokens = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.finish: list[asyncio.Event] = []
        self.inside: set[int] = set()
        self.order: list[int] = []

    def ask(self, wait_s: float, claim: Claim = SMALLEST) -> None:
        self.finish.append(asyncio.Event())
        self.tasks.append(asyncio.create_task(self._hold(len(self.tasks), wait_s, claim)))

    async def _hold(self, number: int, wait_s: float, claim: Claim) -> None:
        async with self.permits.hold(wait_s, claim):
            self.inside.add(number)
            self.order.append(number)
            self.tokens += claim.tokens
            try:
                await self.finish[number].wait()
            finally:
                self.inside.discard(number)
                self.tokens -= claim.tokens

    def check(self) -> None:
        assert len(self.inside) <= self.permits.held <= self.permits.limit
        assert self.tokens <= self.permits.tokens
        assert self.permits.budget is None or self.permits.tokens <= self.permits.budget

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        assert (len(self.inside), self.tokens) == (self.permits.held, self.permits.tokens)
        if self.permits.waiting and self.permits.held < self.permits.limit:
            assert self.permits.budget is not None, "a permit lies idle"
            assert self.permits.tokens > 0, "all tokens lie idle"


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3), st.none() | st.integers(8, 12), _MOVES)
def test_the_count_is_right_after_any_sequence(
    limit: int, budget: int | None, moves: list[tuple[str, int]]
) -> None:
    async def play() -> None:
        crowd = Crowd(limit, budget)
        for move, number in moves:
            if move.startswith("ask"):
                claim = Claim(number, Priority(number % 3), "ab"[number % 2])
                crowd.ask(0 if move == "ask briefly" else 60, claim)
            elif move == "turn":
                for _ in range(number):
                    await asyncio.sleep(0)
            elif number < len(crowd.tasks):
                crowd.tasks[number].cancel() if move == "cancel" else crowd.finish[number].set()
            crowd.check()
        await crowd.settle()
        for event in crowd.finish:
            event.set()
        for outcome in await asyncio.gather(*crowd.tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, QueueTimeout | asyncio.CancelledError)
        assert (crowd.permits.held, crowd.permits.waiting, crowd.permits.free) == (0, 0, True)
        assert crowd.permits.tokens == 0

    asyncio.run(play())


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3), st.lists(st.tuples(st.sampled_from(["cancel", "finish"]), st.integers(0, 11))))
def test_those_who_wait_come_in_their_order(limit: int, moves: list[tuple[str, int]]) -> None:
    async def play() -> None:
        crowd = Crowd(limit)
        for _ in range(12):
            crowd.ask(60)
        await asyncio.sleep(0)
        for move, number in moves:
            crowd.tasks[number].cancel() if move == "cancel" else crowd.finish[number].set()
            await asyncio.sleep(0)
        for event in crowd.finish:
            event.set()
        await asyncio.gather(*crowd.tasks, return_exceptions=True)
        assert crowd.order == sorted(crowd.order)
        assert crowd.permits.free

    asyncio.run(play())


async def test_a_permit_granted_to_one_who_leaves_goes_to_the_next() -> None:
    permits = Permits(1)
    await permits.acquire(1)
    first, second = (asyncio.create_task(permits.acquire(60)) for _ in range(2))
    await asyncio.sleep(0)
    permits.release()  # grants the first one, who has not run yet
    first.cancel()
    await second
    assert first.cancelled()
    assert (permits.held, permits.waiting) == (1, 0)
    permits.release()
    assert permits.free


async def test_a_clock_that_runs_out_says_what_the_limit_is() -> None:
    permits = Permits(2)
    await permits.acquire(1)
    await permits.acquire(1)
    began = time.monotonic()
    with pytest.raises(QueueTimeout, match=r"0\.05 s; 2 requests"):
        async with permits.hold(0.05):
            raise AssertionError("no permit was free")
    assert time.monotonic() - began >= 0.049
    assert (permits.held, permits.waiting) == (2, 0)


async def test_nobody_passes_those_who_wait() -> None:
    permits = Permits(1)
    await permits.acquire(1)
    waiting = asyncio.create_task(permits.acquire(60))
    await asyncio.sleep(0)
    permits.release()
    assert not permits.free  # it is the waiting one's, although it has not run yet
    await waiting


async def test_a_token_budget_bounds_what_runs() -> None:
    permits = Permits(10, 100)
    await permits.acquire(1, Claim(60))
    async with permits.hold(1, Claim(40)) as permit:
        assert (permits.held, permits.tokens, permits.free) == (2, 100, False)
        waiting = asyncio.create_task(permits.acquire(60, Claim(30)))
        await asyncio.sleep(0)
        assert permits.waiting == 1
        assert permit.claims(Claim(10)), "less is always possible, and lets the other in"
        assert (permits.held, permits.tokens) == (3, 100)
    await waiting
    permits.release(Claim(30))
    permits.release(Claim(60))
    assert (permits.held, permits.tokens, permits.free) == (0, 0, True)


async def test_more_tokens_are_had_only_when_there_is_room() -> None:
    permits = Permits(2, 100)
    async with permits.hold(1) as permit:
        assert permit.claims(Claim(70))
        await permits.acquire(1, Claim(30))
        assert not permit.claims(Claim(71))
        assert permits.tokens == 100
        permits.release(Claim(30))
    assert (permits.held, permits.tokens) == (0, 0)


async def test_an_estimate_larger_than_the_budget_goes_alone() -> None:
    permits = Permits(4, 100)
    async with permits.hold(1, Claim(1000)):
        assert (permits.held, permits.free) == (1, False)
        with pytest.raises(QueueTimeout, match=r"4 requests of 100 tokens in all \(this one has 1\)"):
            await permits.acquire(0.01, Claim(1))
    async with permits.hold(1, Claim(1)):
        with pytest.raises(QueueTimeout):
            await permits.acquire(0.01, Claim(1000))
    assert (permits.held, permits.tokens) == (0, 0)


async def test_other_limits_forget_nobody() -> None:
    permits = Permits(1, 100)
    await permits.acquire(1, Claim(90))
    waiting = [asyncio.create_task(permits.acquire(60, Claim(20))) for _ in range(2)]
    await asyncio.sleep(0)
    permits.change(3, 110, AdmissionSettings())
    await waiting[0]
    assert (permits.held, permits.tokens, permits.waiting) == (2, 110, 1)
    permits.change(1, 50, AdmissionSettings())
    permits.release(Claim(90))
    assert (permits.held, permits.waiting) == (1, 1), "there is still one more than may be"
    permits.release(Claim(20))
    await waiting[1]
    permits.release(Claim(20))
    assert (permits.held, permits.tokens) == (0, 0)


async def test_a_large_one_that_gives_up_makes_way_for_small_ones() -> None:
    permits = Permits(4, 100)
    await permits.acquire(1, Claim(50))
    large = asyncio.create_task(permits.acquire(60, Claim(100)))
    await asyncio.sleep(0)
    for _ in range(2):
        await permits.acquire(1, Claim(50))  # passes the large one
        permits.release(Claim(50))
    small = asyncio.create_task(permits.acquire(60, Claim(50)))
    await asyncio.sleep(0)
    assert permits.waiting == 2, "the large one has been passed by as much as the budget"
    large.cancel()
    await small
    assert (permits.held, permits.tokens, permits.waiting) == (2, 100, 0)


async def test_a_full_line_refuses_with_the_time_in_which_it_drains() -> None:
    now = [100.0]
    permits = Permits(1, None, AdmissionSettings(max_queue=3), lambda: now[0])
    await permits.acquire(1)
    waiting = [asyncio.create_task(permits.acquire(60)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(QueueFull, match="3 requests of priority normal wait") as unmeasured:
        await permits.acquire(60)
    assert (unmeasured.value.status, unmeasured.value.retry_after_s) == (429, 5)
    for _ in range(2):  # one every 4 s
        now[0] += 4
        permits.release()
        waiting.append(asyncio.create_task(permits.acquire(60)))
        await asyncio.sleep(0)
    with pytest.raises(QueueFull) as measured:
        await permits.acquire(60)
    assert measured.value.retry_after_s == 12  # three wait, one is served every 4 s
    urgent = asyncio.create_task(permits.acquire(60, Claim(0, Priority.REALTIME)))
    await asyncio.sleep(0)
    assert permits.waiting == 4, "each priority has a line of its own"
    for task in (urgent, *waiting):
        permits.release()
        await task
    permits.release()
    assert permits.free


async def test_bodies_wait_until_there_is_room_for_their_bytes() -> None:
    bodies = Bodies(AdmissionSettings(max_bytes_in_flight=2000))
    async with bodies.hold(1, Claim(1500)):
        with pytest.raises(QueueTimeout, match=r"a body of 1,000 bytes .* at most 2,000 bytes"):
            await bodies.acquire(0.01, Claim(1000))
        async with bodies.hold(1, Claim(500)):
            assert bodies.tokens == 2000
    async with bodies.hold(1, Claim(10_000)):
        assert not bodies.free, "one that is larger than all of it goes alone"
    assert (bodies.held, bodies.tokens) == (0, 0)
