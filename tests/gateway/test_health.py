"""The breaker and the probes of one upstream, on a clock that the tests turn."""

from __future__ import annotations

import pytest

from dabom.gateway.health import Breaker, BreakerState, Health, HealthSettings, Probes

SETTINGS = HealthSettings(breaker_failures=3, breaker_open_s=5, probes_down=3, probes_up=2)
CLOSED, HALF_OPEN, OPEN = BreakerState.CLOSED, BreakerState.HALF_OPEN, BreakerState.OPEN


def failed(breaker: Breaker, times: int, now: float = 0.0) -> Breaker:
    for _ in range(times):
        breaker = breaker.failed(now, SETTINGS)
    return breaker


def probed(probes: Probes, *outcomes: str, busy: bool = False) -> list[bool]:
    states = []
    for outcome in outcomes:
        probes = probes.saw(outcome, SETTINGS, busy=busy)  # type: ignore[arg-type]
        states.append(probes.up)
    return states


def test_failures_in_a_row_open_it() -> None:
    assert failed(Breaker(), 2).state is CLOSED
    assert failed(Breaker(), 3).state is OPEN
    assert failed(failed(Breaker(), 2).succeeded(), 2).state is CLOSED


def test_open_it_allows_nothing_until_its_time_is_over() -> None:
    opened = failed(Breaker(), 3, now=100)
    assert [opened.allows(now) for now in (100, 104.9, 105)] == [False, False, True]
    assert opened.at(105).state is HALF_OPEN


def test_half_open_it_lets_one_try_at_a_time() -> None:
    trying = failed(Breaker(), 3, now=100).began(105)
    assert trying.state is HALF_OPEN
    assert not trying.allows(106)
    assert trying.succeeded() == Breaker()
    assert trying.left().allows(106)  # its client went: the next one tries


def test_a_failed_trial_opens_it_for_longer_each_time() -> None:
    breaker, now, pauses = failed(Breaker(), 3), 0.0, []
    for _ in range(8):
        pauses.append(breaker.until - now)
        now = breaker.until
        breaker = breaker.began(now).failed(now, SETTINGS)
    assert pauses == [5, 10, 20, 40, 60, 60, 60, 60]
    assert failed(breaker.at(breaker.until).succeeded(), 3, now=now).until - now == 5


def test_what_was_sent_before_it_opened_does_not_prolong_it() -> None:
    opened = failed(Breaker(), 3, now=100)
    assert failed(opened, 5, now=103) == opened


def test_a_success_of_a_closed_one_costs_nothing() -> None:
    breaker = Breaker()
    assert breaker.succeeded() is breaker


def test_probes_have_to_say_it_more_than_once() -> None:
    assert probed(Probes(), "down", "down", "up", "down", "down", "down") == [True] * 5 + [False]
    assert probed(Probes(up=False), "up", "down", "up", "up") == [False, False, False, True]


def test_a_slow_probe_under_load_says_nothing() -> None:
    assert probed(Probes(), *["slow"] * 10, busy=True) == [True] * 10
    assert probed(Probes(), "slow", "slow", "slow", busy=False) == [True, True, False]
    assert probed(Probes(), "down", "down", "down", busy=True) == [True, True, False]


@pytest.fixture
def seen() -> list[BreakerState]:
    return []


@pytest.fixture
def health(seen: list[BreakerState]) -> Health:
    return Health(SETTINGS, seen.append)


def test_changes_of_the_breaker_are_told_once(health: Health, seen: list[BreakerState]) -> None:
    for now in (0.0, 1.0, 2.0, 3.0):
        health.failed(now)
    health.began(7.5)
    health.succeeded(7.6)
    health.succeeded(7.7)
    assert seen == [OPEN, HALF_OPEN, CLOSED]


def test_an_overloaded_one_rests_and_is_not_broken(health: Health, seen: list[BreakerState]) -> None:
    for _ in range(20):
        health.overloaded(10, 2)
    assert not health.fit(11.9)
    assert health.fit(12)
    health.overloaded(20, 3600)
    assert health.fit(80)  # nobody is sent away for longer than a minute
    health.overloaded(90, 5)
    health.succeeded(91)
    assert health.fit(91)
    assert seen == []


def test_a_real_answer_outweighs_the_probes(health: Health) -> None:
    for now in (1.0, 2.0, 3.0):
        health.probed("down", now, busy=False)
    assert not health.fit(4)
    health.succeeded(4)
    assert health.fit(4)


def test_a_trial_that_tells_nothing_gives_way_to_the_next(health: Health) -> None:
    for _ in range(3):
        health.failed(0)
    health.began(5)
    assert not health.fit(5)
    health.left()
    assert health.fit(5)
    health.began(5)
    health.overloaded(5, 1)
    assert [health.fit(now) for now in (5, 6)] == [False, True]
    assert health.state(6) is HALF_OPEN


def test_one_that_works_and_answers_nothing_for_a_minute_is_stuck(health: Health) -> None:
    health.began(100)
    for now in (110, 120, 130, 140, 150):
        health.began(now)
        health.probed("slow", now, busy=True)
    assert health.probes.up
    for now in (161, 170, 180):
        health.probed("slow", now, busy=True)
    assert not health.probes.up


def test_one_that_answers_now_and_then_is_not_stuck(health: Health) -> None:
    for now in range(0, 600, 50):
        health.began(now)
        health.probed("slow", now + 5, busy=True)
        health.succeeded(now + 40)
    assert health.probes.up
