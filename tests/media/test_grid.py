from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dabom.media.grid import ROUNDING_S, Grid, Place


def walk(grid: Grid, times: list[float], lasts_s: float = 0.04) -> dict[Place, int]:
    """Which frame each place gets, when frames come at these times."""
    found: dict[Place, int] = {}
    shown: float | None = None
    for number, time in enumerate(times):
        for place in grid.before(time, shown, lasts_s):
            found[place] = max(0, number - 1)
        shown = time
    if shown is not None:
        found.update(dict.fromkeys(grid.at_end(shown, lasts_s), len(times) - 1))
    return found


@given(st.lists(st.integers(1, 400), min_size=1, max_size=80))
def test_a_place_has_the_last_frame_that_is_not_after_it(gaps_ms: list[int]) -> None:
    times = [0.0]
    for gap in gaps_ms:
        times.append(round(times[-1] + gap / 1000, 3))
    grid = Grid([0.0, 1.0], Fraction(10), 10)
    for place, number in walk(grid, times).items():
        at = place.window + place.number / 10
        assert times[number] <= at + ROUNDING_S
        assert number + 1 == len(times) or times[number + 1] > at + ROUNDING_S - 1e-9


def test_windows_before_the_first_frame_are_late() -> None:
    grid = Grid([0.0], Fraction(10), 10)
    found = walk(grid, [0.35, *(0.35 + n / 25 for n in range(1, 30))])
    assert grid.late == {0}
    assert [found[Place(0, n)] for n in range(4)] == [0, 0, 0, 0]


def test_a_hole_is_noted_and_a_long_frame_is_not() -> None:
    hole = Grid([0.0, 1.0, 2.0], Fraction(10), 10)
    walk(hole, [0.0, 0.04, 2.5, 2.54, 3.0])
    assert hole.held == {0, 1, 2}
    still = Grid([0.0, 1.0, 2.0], Fraction(10), 10)
    walk(still, [0.0, 3.0, 3.04], lasts_s=3.0)
    assert still.held == set()


def test_a_window_that_the_recording_does_not_fill_is_short() -> None:
    grid = Grid([0.0, 1.0], Fraction(10), 10)
    walk(grid, [n / 25 for n in range(40)])
    assert grid.short == {1}
    assert not grid.done


def test_a_native_rate_takes_frames_in_a_row_in_spite_of_rounding() -> None:
    rate = Fraction(30_000, 1001)
    times = [round(float(n / rate), 3) for n in range(400)]
    grid = Grid([6.0, 12.0], rate, 180, native=True)
    found = walk(grid, times, 0.033)
    for window, first in ((0, 179), (1, 359)):
        count = 180 if window == 0 else 40
        assert [found[Place(window, n)] for n in range(count)] == list(range(first, first + count))


@given(st.integers(5, 61), st.floats(0, 1), st.lists(st.booleans(), min_size=60, max_size=60))
def test_a_frame_that_is_not_wanted_changes_nothing(rate: int, shift: float, kept: list[bool]) -> None:
    times = [shift + n / rate for n in range(rate * 4)]
    starts = [shift + 0.5, shift + 2.0]
    whole = walk(Grid(starts, Fraction(10), 10), times, 1 / rate)
    judge = Grid(starts, Fraction(10), 10)
    left = [n for n, t in enumerate(times) if judge.wants(t, 1 / rate) or kept[n % 60] or n == 0]
    thinned = walk(Grid(starts, Fraction(10), 10), [times[n] for n in left], 1 / rate)
    assert {place: left[number] for place, number in thinned.items()} == whole


@pytest.mark.parametrize("shift", [0.0, 0.01, 0.02])
def test_at_three_times_the_rate_two_frames_in_three_are_not_wanted(shift: float) -> None:
    grid = Grid([0.0, 1.0], Fraction(10), 10)
    wanted = [grid.wants(n / 30 + shift, 1 / 30) for n in range(60)]
    assert 19 <= sum(wanted) <= 20
    assert not any(grid.wants(2 + n / 30, 1 / 30) for n in range(30))
