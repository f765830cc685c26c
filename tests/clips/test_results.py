from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.clips.stored import answer, attempt, put_clips, stored_run

from dabom.clips.results import busy_s, percentiles, read_results, results_of, summary
from dabom.store import RunItem, open_runs

if TYPE_CHECKING:
    from pathlib import Path


def test_a_summary_counts_by_state_code_and_category(tmp_path: Path) -> None:
    put_clips(tmp_path / "clips", "news/1.mp4", "news/2.mp4", "docu/1.mp4")
    runs = open_runs(str(tmp_path / "runs.db"))
    run = stored_run(runs, tmp_path / "clips")
    runs.record(run.id, attempt(2, answer("눈"), elapsed_ms=1250), "done")
    told = summary(run, read_results(runs, run))
    runs.close()
    assert (told["items"], told["done"], told["failed"], told["open"], told["attempts"]) == (3, 2, 1, 0, 4)
    assert told["codes"] == {"empty": 1}
    assert told["tokens"] == {"prompt_tokens": 4200, "completion_tokens": 270}
    docu, news = told["categories"]
    assert (docu["category"], docu["clips"], docu["done"], docu["rate"]) == ("docu", 1, 1, 1.0)
    assert (news["category"], news["clips"], news["done"], news["failed"]) == ("news", 2, 1, 1)
    assert news["codes"] == {"empty": 1}
    assert news["low"] < 0.5 < news["high"]
    assert told["latency_ms"]["p50"] == pytest.approx(750)
    assert told["clips_a_minute"] == pytest.approx(60 * 3 / (0.25 + 0.25 + 1.25), abs=0.01)
    assert told["controls"] == []


def test_neighbours_are_those_of_one_folder() -> None:
    names = ["a/1", "a/2", "b/1", "b/2", "b/3"]
    items = [RunItem(n, name, "", name[0], "", state="done", attempt=1) for n, name in enumerate(names)]
    said = ["같다", "다르다", "다르다", "같다", "같다"]
    attempts = {n: [attempt(n, answer(text))] for n, text in enumerate(said)}
    found = results_of(items, attempts)
    assert [result.codes for result in found] == [(), (), (), ("same_as_neighbour",), ("same_as_neighbour",)]


def test_a_control_that_failed_is_not_judged() -> None:
    items = [
        RunItem(0, "1#mute", "", "a", "", "mute", "1", state="failed", code="invalid_schema", attempt=1),
        RunItem(1, "2#mute", "", "a", "", "mute", "2", state="done", attempt=1),
    ]
    attempts = {n: [attempt(n, answer(speech="앵커가 말한다"))] for n in range(2)}
    assert [result.claims for result in results_of(items, attempts)] == [None, True]


def test_time_counts_while_something_is_under_way() -> None:
    one, other = attempt(0, "", elapsed_ms=1500), attempt(1, "", elapsed_ms=500)  # begin 1 s apart
    late = attempt(3600, "", elapsed_ms=250)
    assert busy_s([late, other, one]) == pytest.approx(1.5 + 0.25)
    queued = replace(late, usage={"wall_ms": 900})
    assert busy_s([queued]) == pytest.approx(0.9)
    assert busy_s([]) == 0


def test_percentiles() -> None:
    assert percentiles([]) == {}
    assert percentiles([7.0]) == {"p50": 7.0, "p90": 7.0, "p99": 7.0}
    assert percentiles([float(n) for n in range(101)]) == {"p50": 50.0, "p90": 90.0, "p99": 99.0}
