from __future__ import annotations

import pytest

from dabom.clips import checks, retry
from dabom.clips.retry import another, is_busy, next_max_tokens, next_seed, rule_of, wait_s


@pytest.mark.parametrize("code", checks.FAILING)
def test_every_check_that_fails_has_a_rule_of_its_own_and_an_end(code: str) -> None:
    rule = rule_of(code, 200)
    assert rule is retry.RULES[code]
    assert not another(rule, rule.attempts)
    assert 1 <= rule.attempts <= 4


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(status: int) -> None:
    rule = rule_of("queue_timeout", status)
    assert is_busy("queue_timeout", status)
    assert [another(rule, tried) for tried in range(1, 8)] == [True] * 5 + [False] * 2


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_what_the_server_refuses_is_final(status: int) -> None:
    assert not another(rule_of("invalid_request", status), 1)
    assert not is_busy("invalid_request", status)
    assert not is_busy("", 503)


def test_waits_grow_and_are_bounded() -> None:
    waits = [wait_s(retry.BUSY, tried) for tried in range(1, 7)]
    assert waits == [2, 4, 8, 16, 20, 20]
    assert wait_s(retry.BUSY, 1, 7.0) == 7
    assert wait_s(retry.BUSY, 1, 3600.0) == retry.MOST_WAIT_S
    assert wait_s(rule_of(checks.EMPTY, 200), 1) == 0


def test_the_next_attempt_differs() -> None:
    assert [next_seed(7, tried) for tried in range(3)] == [7, 8, 9]
    assert next_max_tokens(1024, rule_of(checks.CUT, 200)) == 2048
    assert next_max_tokens(1024, rule_of(checks.EMPTY, 200)) == 1024
    assert next_max_tokens(1024, None) == 1024
