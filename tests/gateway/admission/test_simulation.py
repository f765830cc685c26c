"""Two hundred mixed requests through one line, with a clock of its own."""

from __future__ import annotations

from statistics import mean

import pytest

from dabom.gateway.admission import Claim, Line, Priority
from dabom.gateway.admission.simulation import Arrival, Fifo, Served, mixed, play

_PERMITS, _BUDGET = 8, 65_536
_SHORTEST_CLIP_S = 6.0 * 0.8
_SEEDS = range(1, 9)


def _line(aging_s: float = 10) -> Line:
    return Line(_PERMITS, _BUDGET, 1000, aging_s)


def _end(served: list[Served]) -> float:
    return max(one.ended for one in served)


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("within_s", [5.0, 60.0])
def test_two_hundred_mixed_requests(seed: int, within_s: float) -> None:
    arrivals, line = mixed(200, within_s, seed), _line()
    most = 0

    def watch(now: float) -> None:
        nonlocal most
        most = max(most, line.tokens)
        assert 0 <= line.held <= _PERMITS
        assert 0 <= line.tokens <= _BUDGET

    served = play(arrivals, line, watch)
    assert sorted(one.arrival.at for one in served) == [arrival.at for arrival in arrivals]
    assert (line.held, line.tokens, line.waiting) == (0, 0, 0)
    assert most > 0.6 * _BUDGET, "the load is too small to show anything"

    fifo = play(arrivals, Fifo(_PERMITS, _BUDGET))
    assert _end(served) <= 1.05 * _end(fifo)  # one clip at the very end is 5 % of all the time

    waits = [one.waited for one in served if one.arrival.claim.priority is Priority.REALTIME]
    assert max(waits) < _SHORTEST_CLIP_S
    unsorted = [one.waited for one in fifo if one.arrival.claim.priority is Priority.REALTIME]
    assert mean(waits) < mean(unsorted) / 5


def test_throughput_is_that_of_the_order_of_arrival() -> None:
    ratios = []
    for seed in range(1, 31):
        arrivals = mixed(200, 30.0, seed)
        ratios.append(_end(play(arrivals, _line())) / _end(play(arrivals, Fifo(_PERMITS, _BUDGET))))
    assert mean(ratios) <= 1.03


def test_the_small_realtime_one_is_next_when_clips_fill_the_target() -> None:
    clips = [Arrival(0.01 * n, Claim(12_800, Priority.NORMAL, "a"), 6.0) for n in range(40)]
    urgent = Arrival(7.0, Claim(300, Priority.REALTIME, "b"), 0.4)
    served = play([*clips, urgent], _line())
    waited = next(one.waited for one in served if one.arrival is urgent)
    assert waited < 6.0


def test_a_flood_of_small_ones_does_not_starve_a_clip_nor_a_batch() -> None:
    """Realtime alone would fill the target for ever."""
    flood = [Arrival(0.05 * n, Claim(8_000, Priority.REALTIME, "a"), 0.5) for n in range(4000)]
    giant = Arrival(1.0, Claim(_BUDGET, Priority.NORMAL, "b"), 6.0)
    batch = [Arrival(1.0, Claim(12_800, Priority.BATCH, "c"), 6.0) for _ in range(3)]
    served = play([*flood, giant, *batch], _line(aging_s=5))
    waited = {id(one.arrival): one.waited for one in served}
    assert waited[id(giant)] < 15
    assert all(waited[id(one)] < 60 for one in batch)
    assert _end(served) > 199, "the flood has not lasted"


def test_a_clip_that_needs_most_of_the_target_is_passed_for_a_bounded_time() -> None:
    """Small ones of the same priority come all the time; the giant must not wait until they stop."""
    small = [Arrival(0.02 * n, Claim(4_000, Priority.NORMAL, "a"), 0.2) for n in range(5000)]
    giant = Arrival(2.0, Claim(60_000, Priority.NORMAL, "a"), 6.0)
    served = play([*small, giant], _line())
    waited = next(one.waited for one in served if one.arrival is giant)
    assert waited < 3


def test_keys_share_by_tokens_whatever_they_send() -> None:
    """One key sends clips, the other texts, both more than there is room for."""
    clips = [Arrival(0.0, Claim(12_800, Priority.NORMAL, "clips"), 6.0) for _ in range(60)]
    texts = [Arrival(0.0, Claim(1_600, Priority.NORMAL, "texts"), 0.75) for _ in range(480)]
    got = {"clips": 0, "texts": 0}
    served = play([*clips, *texts], _line())
    half = _end(served) / 2
    for one in served:
        if one.ended <= half:
            got[one.arrival.claim.key] += one.arrival.claim.tokens
    assert 0.8 < got["clips"] / got["texts"] < 1.25
