"""The bars that the gateway must meet, as pure functions over measured rounds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OURS: Final = "dabom"
DIRECT: Final = "direct"
_TWO_SPEEDS: Final = 0.75
_RSS_LIMIT_MB: Final = 200.0
_TEXT_EXTRA_MS: Final = 0.5

Sample = dict[str, Any]
Rounds = dict[str, dict[str, list[Sample]]]
"""Samples by kind of work, then by gateway; one sample per round."""


@dataclass(frozen=True)
class Kind:
    """A kind of work: how the load is started and which of its numbers counts."""

    name: str
    title: str
    load: tuple[str, ...]
    number: str
    lower_is_better: bool = False


@dataclass(frozen=True)
class Verdict:
    """One bar: what was needed, what was found."""

    bar: str
    found: str
    passed: bool | None


@dataclass(frozen=True)
class _Bar:
    kind: str
    peer: str
    factor: float
    strict: bool = False


def all_kinds() -> dict[str, Kind]:
    """Every kind of work by name, in the order of the table."""
    kinds = [Kind("text-1", "text, 1 client, p50 ms", ("--clients", "1"), "p50_ms", True)]
    kinds.append(Kind("text-8", "text, 8 clients, req/s", ("--clients", "8"), "requests_per_s"))
    for size in ("1.25", "3"):
        load = ("--kind", size, "--clients")
        kinds.append(Kind(f"{size}-1", f"{size} MB clip, 1 client, p50 ms", (*load, "1"), "p50_ms", True))
        kinds.append(Kind(f"{size}-8", f"{size} MB clip, 8 clients, req/s", (*load, "8"), "requests_per_s"))
    kinds.append(Kind("sse-8", "SSE, 8 clients, events/s", ("--stream", "--clients", "8"), "events_per_s"))
    return {kind.name: kind for kind in kinds}


def _bars() -> list[_Bar]:
    bars: list[_Bar] = []
    for size in ("1.25", "3"):
        bars += [_Bar(f"{size}-8", "vllm-router", 1.0), _Bar(f"{size}-8", "smg", 0.95)]
        bars += [_Bar(f"{size}-8", "nginx", 0.8)]
        bars += [_Bar(f"{size}-1", "vllm-router", 1.0), _Bar(f"{size}-1", "smg", 1.25)]
    bars += [_Bar("sse-8", peer, 1.0, strict=True) for peer in ("nginx", "vllm-router", "smg")]
    bars.append(_Bar("text-8", "smg", 0.5))
    return bars


def speeds(values: Sequence[float], lower_is_better: bool) -> tuple[float, float | None]:
    """Median of the rounds near the best one, and median of the others, if any.

    For a peer that starts up in one of two speeds: it is judged by the fast one.
    """
    best = min(values) if lower_is_better else max(values)

    def near(value: float) -> bool:
        return (best / value if lower_is_better else value / best) >= _TWO_SPEEDS

    slow = [value for value in values if not near(value)]
    fast = [value for value in values if near(value)]
    return statistics.median(fast), statistics.median(slow) if slow else None


def value(rounds: Rounds, kind: Kind, gateway: str) -> float | None:
    """The number of a gateway: the median, or for smg its fast speed. None when not measured."""
    numbers = _numbers(rounds, kind, gateway)
    if not numbers:
        return None
    return speeds(numbers, kind.lower_is_better)[0] if gateway == "smg" else statistics.median(numbers)


def slow_value(rounds: Rounds, kind: Kind, gateway: str) -> float | None:
    """The slow speed, where there were two."""
    numbers = _numbers(rounds, kind, gateway)
    return speeds(numbers, kind.lower_is_better)[1] if numbers else None


def _numbers(rounds: Rounds, kind: Kind, gateway: str) -> list[float]:
    samples = rounds.get(kind.name, {}).get(gateway, [])
    return [sample[kind.number] for sample in samples if sample[kind.number]]


def judge(rounds: Rounds, rss_mb: Mapping[str, float]) -> list[Verdict]:
    """Every bar that can be judged from what was measured; `passed` is None where a peer is missing."""
    kinds = all_kinds()
    found: list[Verdict] = []
    for bar in _bars():
        kind = kinds[bar.kind]
        if kind.name in rounds:
            found.append(_judge_ratio(bar, kind, value(rounds, kind, OURS), value(rounds, kind, bar.peer)))
    if "text-1" in rounds:
        found.append(_judge_text(rounds, kinds["text-1"]))
    if OURS in rss_mb:
        peak = rss_mb[OURS]
        bar_text = f"peak RSS with 8 clips of 3 MB in flight below {_RSS_LIMIT_MB:g} MB"
        found.append(Verdict(bar_text, f"{peak:.0f} MB", peak < _RSS_LIMIT_MB))
    return [*found, _judge_answers(rounds)]


def _judge_ratio(bar: _Bar, kind: Kind, ours: float | None, peer: float | None) -> Verdict:
    sign = "≤" if kind.lower_is_better else (">" if bar.strict else "≥")
    words = f"{kind.title}: {sign} {bar.factor:g} × {bar.peer}"
    if not ours or not peer:
        return Verdict(words, "not measured", None)
    ratio = ours / peer
    passed = ratio <= bar.factor if kind.lower_is_better else ratio >= bar.factor
    return Verdict(words, f"{ratio:.2f}", passed and not (bar.strict and ratio == bar.factor))


def _judge_text(rounds: Rounds, kind: Kind) -> Verdict:
    words = f"{kind.title}: at most {_TEXT_EXTRA_MS:g} ms over direct"
    ours, direct = value(rounds, kind, OURS), value(rounds, kind, DIRECT)
    if ours is None or direct is None:
        return Verdict(words, "not measured", None)
    return Verdict(words, f"{ours - direct:+.2f} ms", ours - direct <= _TEXT_EXTRA_MS)


def _judge_answers(rounds: Rounds) -> Verdict:
    samples = [sample for by_gateway in rounds.values() for sample in by_gateway.get(OURS, [])]
    if not samples:
        return Verdict("every answer right, every body byte for byte", "not measured", None)
    errors = sum(sample["errors"] + sample["warm_errors"] for sample in samples)
    changed = sum(sample["body_intact"] is not True for sample in samples)
    words = f"{errors} wrong answers, {changed} changed bodies in {len(samples)} measurements"
    return Verdict("every answer right, every body byte for byte", words, not errors and not changed)
