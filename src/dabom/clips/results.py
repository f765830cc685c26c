"""The results of a run, one for each item, and what they add up to. Pure but for the reading."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from dabom.clips import checks
from dabom.clips.judge import CLAIMS, judge, rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dabom.store import Attempt, Run, RunItem, Runs


@dataclass(frozen=True, slots=True)
class Result:
    """One item with the attempt that counts, and all codes that were found about it.

    `value` is the answer as JSON, None when it is none. `claims` says whether a control's answer claims what
    is not there; None when nobody can tell.
    """

    item: RunItem
    attempt: Attempt | None
    attempts: int
    value: Any
    codes: tuple[str, ...]
    claims: bool | None = None

    @property
    def text(self) -> str:
        """What is taken of the answer."""
        return self.attempt.text if self.attempt is not None else ""


def read_results(runs: Runs, run: Run) -> list[Result]:
    """Every item of a run in its order; an open one without an attempt that counts."""
    attempts = {
        position: list(found)
        for position, found in groupby(runs.attempts(run.id), key=lambda attempt: attempt.position)
    }
    items = runs.items(run.id)
    return results_of(items, attempts)


def results_of(items: Sequence[RunItem], attempts: dict[int, list[Attempt]]) -> list[Result]:
    """Items and their attempts, by position, as results."""
    found = [_result(item, attempts.get(item.position, [])) for item in items]
    clips = [result for result in found if not result.item.control and result.item.state == "done"]
    same = set[int]()
    for _, group in groupby(clips, key=lambda result: result.item.name.rpartition("/")[0]):
        neighbours = list(group)
        alike = checks.same_as_neighbour([result.text for result in neighbours])
        same |= {one.item.position for one, is_same in zip(neighbours, alike, strict=True) if is_same}
    return [_marked(result) if result.item.position in same else result for result in found]


def _marked(result: Result) -> Result:
    codes = (*result.codes, checks.SAME)
    return Result(result.item, result.attempt, result.attempts, result.value, codes, result.claims)


def _result(item: RunItem, attempts: list[Attempt]) -> Result:
    last = next((attempt for attempt in attempts if attempt.number == item.attempt), None)
    if last is None:
        return Result(item, None, len(attempts), None, ())
    value = _value(last.text)
    claims = judge(item.control, value, last.text) if item.control and item.state == "done" else None
    return Result(item, last, len(attempts), value, last.codes, claims)


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def summary(run: Run, results: Sequence[Result]) -> dict[str, Any]:
    """What a run adds up to. One run has one protocol: nothing here mixes two."""
    clips = [result for result in results if not result.item.control]
    asked = [result.attempt for result in results if result.attempt is not None]
    done = [result.attempt for result in results if result.attempt and result.item.state == "done"]
    return {
        "run": run.id,
        "state": run.state,
        "protocol": run.protocol,
        "model": run.model,
        "server": run.server,
        "prompt_sha256": run.prompt_sha256,
        "schema_sha256": run.schema_sha256,
        "items": len(results),
        **_states(results),
        "attempts": sum(result.attempts for result in results),
        "categories": [_category(name, found) for name, found in _by_category(clips)],
        "codes": dict(Counter(code for result in results for code in _all_codes(result)).most_common()),
        "latency_ms": percentiles([attempt.elapsed_ms for attempt in done]),
        "tokens": {
            name: sum(int(attempt.usage.get(name) or 0) for attempt in asked)
            for name in ("prompt_tokens", "completion_tokens")
        },
        "clips_a_minute": _throughput(asked),
        "controls": controls(results),
    }


def controls(results: Sequence[Result]) -> list[dict[str, Any]]:
    """For each kind of control, over all and by category: how many answers claim what is not there."""
    rows = list[dict[str, Any]]()
    for kind, claim in CLAIMS.items():
        judged = [result for result in results if result.item.control == kind and result.claims is not None]
        if not judged:
            continue
        for name, found in [("", judged), *_by_category(judged)]:
            counted = rate(bool(result.claims) for result in found)
            low, high = counted.interval
            row = {"control": kind, "claim": claim, "category": name, "count": counted.count}
            rows.append({**row, "total": counted.total, "rate": counted.share, "low": low, "high": high})
    return rows


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p90 and p99; nothing of nothing."""
    if not values:
        return {}
    if len(values) == 1:
        return dict.fromkeys(("p50", "p90", "p99"), values[0])
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {f"p{place}": round(cuts[place - 1], 1) for place in (50, 90, 99)}


def _states(results: Iterable[Result]) -> dict[str, int]:
    counted = Counter(result.item.state for result in results)
    return {"done": counted["done"], "failed": counted["failed"], "open": counted["open"]}


def _all_codes(result: Result) -> set[str]:
    """The notes of an answer, and the code that an item failed or waits with."""
    return {code for code in (*result.codes, result.item.code) if code}


def _category(name: str, found: Sequence[Result]) -> dict[str, Any]:
    done = sum(result.item.state == "done" for result in found)
    low, high = rate(result.item.state == "done" for result in found).interval
    codes = Counter(code for result in found for code in _all_codes(result))
    states = _states(found)
    return {
        "category": name,
        "clips": len(found),
        **states,
        "rate": done / len(found),
        "low": low,
        "high": high,
        "codes": dict(codes.most_common()),
        "latency_ms": percentiles([result.attempt.elapsed_ms for result in found if result.attempt]),
    }


def _by_category(results: Iterable[Result]) -> list[tuple[str, list[Result]]]:
    found = dict[str, list[Result]]()
    for result in results:
        found.setdefault(result.item.category, []).append(result)
    return sorted(found.items())


def busy_s(attempts: Sequence[Attempt]) -> float:
    """Seconds in which at least one of them was under way: interruptions of a run do not count."""
    total = until = 0.0
    for attempt in sorted(attempts, key=lambda attempt: attempt.started_at):
        end = attempt.started_at + float(attempt.usage.get("wall_ms") or attempt.elapsed_ms) / 1000
        total += max(0.0, end - max(until, attempt.started_at))
        until = max(until, end)
    return total


def _throughput(asked: Sequence[Attempt]) -> float | None:
    """Items that got their answer in a minute of work."""
    seconds = busy_s(asked)
    return round(60 * len(asked) / seconds, 2) if seconds else None
