from __future__ import annotations

import json
from typing import Any

import pytest
from bench.gateway.bars import all_kinds, judge, slow_value, speeds, value
from bench.gateway.memory import Case, batch_bytes, check_lines, pieces
from bench.gateway.stub import ANSWER


def _sample(number: float) -> dict[str, Any]:
    numbers = dict.fromkeys(("p50_ms", "requests_per_s", "events_per_s"), number)
    return {**numbers, "errors": 0, "warm_errors": 0, "body_intact": True}


def test_the_fast_speed_counts_for_smg() -> None:
    assert speeds([430, 870, 860, 440], lower_is_better=False) == (865, 435)
    assert speeds([1.0, 1.1, 2.1], lower_is_better=True) == (1.05, 2.1)
    rounds = {"1.25-8": {name: [_sample(number) for number in (430, 870, 440)] for name in ("smg", "nginx")}}
    kind = all_kinds()["1.25-8"]
    assert value(rounds, kind, "smg") == 870
    assert slow_value(rounds, kind, "smg") == 435
    assert value(rounds, kind, "nginx") == 440
    assert value(rounds, kind, "vllm-router") is None


@pytest.mark.parametrize(("ours", "passed"), [(96, True), (94, False)])
def test_a_rate_is_judged_as_a_part_of_the_peers(ours: float, passed: bool) -> None:
    rounds = {"1.25-8": {"dabom": [_sample(ours)], "smg": [_sample(100)]}}
    verdicts = {verdict.bar: verdict for verdict in judge(rounds, {})}
    assert verdicts["1.25 MB clip, 8 clients, req/s: ≥ 0.95 × smg"].passed is passed
    assert verdicts["1.25 MB clip, 8 clients, req/s: ≥ 0.8 × nginx"].passed is None


@pytest.mark.parametrize(("ours", "passed"), [(1.2, True), (1.3, False)])
def test_a_time_is_judged_the_other_way_round(ours: float, passed: bool) -> None:
    rounds = {"1.25-1": {"dabom": [_sample(ours)], "smg": [_sample(1.0)]}}
    verdicts = {verdict.bar: verdict.passed for verdict in judge(rounds, {"dabom": 199.0})}
    assert verdicts["1.25 MB clip, 1 client, p50 ms: ≤ 1.25 × smg"] is passed
    assert verdicts["peak RSS with 8 clips of 3 MB in flight below 200 MB"] is True


def test_one_wrong_answer_or_changed_body_fails() -> None:
    for wrong in ({"errors": 1}, {"warm_errors": 1}, {"body_intact": False}):
        assert judge({"text-1": {"dabom": [_sample(1) | wrong]}}, {})[-1].passed is False
    assert judge({"text-1": {"dabom": [_sample(1)]}}, {})[-1].passed is True


def test_batches_are_written_item_by_item() -> None:
    array, lines = Case("", 3), Case("", 3, ndjson=True)
    assert b"".join(pieces(array, b"{}")) == (
        b'{"items":[{"id":"i-0","body":{}},{"id":"i-1","body":{}},{"id":"i-2","body":{}}]}'
    )
    assert b"".join(pieces(lines, b"{}")).count(b"\n") == 3
    assert batch_bytes(array, b"{}") == 80


def test_every_item_of_a_batch_has_to_come_back_once() -> None:
    right = [{"id": f"i-{number}", "status": 200, "body": json.loads(ANSWER)} for number in range(3)]
    assert check_lines(right[::-1], 3) == ""
    assert "1 ids missing" in check_lines(right[:2], 3)
    assert "4 lines" in check_lines([*right, right[0]], 3)
    assert "1 wrong" in check_lines([*right[:2], right[2] | {"status": 502}], 3)
    assert "1 wrong" in check_lines([*right[:2], right[2] | {"body": {}}], 3)
