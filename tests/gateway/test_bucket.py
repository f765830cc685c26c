"""The decisions of a token bucket, with the time passed in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dabom.gateway.bucket import Bucket


def test_a_bucket_starts_full_and_fills_in_a_minute() -> None:
    bucket = Bucket.full(60, now=100).take(60, now=100)
    assert bucket.wait_s(1, now=100) == pytest.approx(1)
    assert bucket.wait_s(1, now=100.5) == pytest.approx(0.5)
    assert bucket.wait_s(60, now=130) == pytest.approx(30)
    assert bucket.level_at(now=1000) == 60


def test_waiting_the_time_that_was_said_is_enough() -> None:
    bucket = Bucket.full(7, now=0).take(7, now=0)
    wait_s = bucket.wait_s(3, now=2)
    assert bucket.wait_s(3, now=2 + wait_s) == pytest.approx(0, abs=1e-9)


def test_what_is_larger_than_the_bucket_needs_a_full_one_and_is_paid_off_later() -> None:
    bucket = Bucket.full(100, now=0)
    assert bucket.wait_s(1000, now=0) == 0
    bucket = bucket.take(1000, now=0)
    assert bucket.wait_s(1, now=0) == pytest.approx(901 * 0.6)


def test_what_is_given_back_never_overflows() -> None:
    assert Bucket.full(10, now=0).take(4, now=0).give(9, now=0).level == 10


def test_a_clock_that_goes_back_changes_nothing() -> None:
    bucket = Bucket.full(60, now=100).take(30, now=100)
    assert bucket.level_at(now=50) == 30
    assert bucket.take(1, now=50).at == 100


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 20)), max_size=60), st.integers(1, 120))
def test_no_minute_gives_more_than_two_buckets(asks: list[tuple[float, int]], per_minute: int) -> None:
    """A full bucket and what a minute brings: that is all that any 60 seconds can give to small requests."""
    bucket, now, taken = Bucket.full(per_minute, 0), 0.0, list[tuple[float, int]]()
    for pause_s, cost in asks:
        now += pause_s
        if cost <= per_minute and not bucket.wait_s(cost, now):
            bucket = bucket.take(cost, now)
            taken.append((now, cost))
    for start, _ in taken:
        assert sum(cost for at, cost in taken if start <= at < start + 60) <= 2 * per_minute + 1e-6
