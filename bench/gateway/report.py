"""The measured rounds as Markdown and JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.gateway.bars import OURS, Kind, Rounds, Verdict, all_kinds, slow_value, value
from bench.gateway.launch import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

LATEST: Final = Path(__file__).resolve().parent / "results" / "latest.json"
PAGE: Final = ROOT / "docs" / "bench.md"


@dataclass(frozen=True)
class Outcome:
    """Everything that one run found."""

    command: str
    machine: str
    began: str
    versions: dict[str, str]
    missing: dict[str, str]
    rounds: Rounds
    rss_mb: dict[str, float]
    verdicts: list[Verdict]

    @property
    def gateways(self) -> list[str]:
        seen = dict.fromkeys(name for by_gateway in self.rounds.values() for name in by_gateway)
        return list(seen)


def describe_machine() -> str:
    """The processor, its cores, the system and Python."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = names[0] if names else platform.processor() or "unknown processor"
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    return f"{model}, {os.cpu_count()} cores, {system}, Python {platform.python_version()}"


def now() -> str:
    """The time of day in UTC, to the minute."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def as_markdown(outcome: Outcome) -> str:
    """The tables of a run."""
    parts = [
        f"{outcome.began}; {outcome.machine}.\n\nCommand: `{outcome.command}`\n",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in outcome.versions.items()) + ".\n",
        _table(outcome, "work", _cell),
        "CPU time of the gateway per request, in ms (SSE: per event, in µs):\n",
        _table(outcome, "work", _cpu_cell),
        _costs(outcome),
        _bars_table(outcome.verdicts),
    ]
    parts += [f"- {name}: not available: {reason}" for name, reason in outcome.missing.items()]
    return "\n".join(part for part in parts if part) + "\n"


def _table(outcome: Outcome, corner: str, cell: Callable[[Outcome, Kind, str], str]) -> str:
    names = outcome.gateways
    lines = [f"| {corner} | {' | '.join(names)} |", "|---|" + "---:|" * len(names)]
    for kind in all_kinds().values():
        if kind.name in outcome.rounds:
            cells = " | ".join(cell(outcome, kind, name) for name in names)
            lines.append(f"| {kind.title} | {cells} |")
    return "\n".join(lines) + "\n"


def _cell(outcome: Outcome, kind: Kind, gateway: str) -> str:
    number = value(outcome.rounds, kind, gateway)
    if number is None:
        return _first_error(outcome, kind, gateway)
    shown = f"{number:,.2f}" if kind.lower_is_better else f"{number:,.0f}"
    ours = value(outcome.rounds, kind, OURS)
    if gateway not in (OURS, "direct") and ours:
        shown += f" ({ours / number:.2f})"
    slow = slow_value(outcome.rounds, kind, gateway) if gateway == "smg" else None
    if slow is not None:
        shown += f"; slow {slow:,.2f}" if kind.lower_is_better else f"; slow {slow:,.0f}"
    if any(sample["errors"] for sample in outcome.rounds[kind.name][gateway]):
        shown += " with errors"
    return shown


def _first_error(outcome: Outcome, kind: Kind, gateway: str) -> str:
    samples = outcome.rounds[kind.name].get(gateway, [])
    words = [error for sample in samples for error in sample["first_errors"]]
    return f"errors: {words[0]}" if words else "-"


def _cpu_cell(outcome: Outcome, kind: Kind, gateway: str) -> str:
    samples = outcome.rounds[kind.name].get(gateway, [])
    costs = [sample["cpu_ms"] for sample in samples if sample.get("cpu_ms") is not None]
    if not costs:
        return "-"
    cost = statistics.median(costs)
    if kind.number == "events_per_s":
        return f"{cost / 64 * 1000:.1f} µs"
    return f"{cost:.3f}"


def _costs(outcome: Outcome) -> str:
    lines = ["| | " + " | ".join(outcome.gateways) + " |", "|---|" + "---:|" * len(outcome.gateways)]
    peaks = (f"{outcome.rss_mb[name]:.0f}" if name in outcome.rss_mb else "-" for name in outcome.gateways)
    lines.append("| peak RSS, 8 clips of 3 MB in flight, MB | " + " | ".join(peaks) + " |")
    lines.append("| body reaches the upstream byte for byte | " + " | ".join(_intact(outcome)) + " |")
    return "\n".join(lines) + "\n"


def _intact(outcome: Outcome) -> list[str]:
    words: list[str] = []
    for name in outcome.gateways:
        rows = [by[name] for by in outcome.rounds.values() if name in by]
        told = {sample["body_intact"] for row in rows for sample in row}
        words.append("yes" if told == {True} else "no" if told == {False} else "not always")
    return words


def _bars_table(verdicts: list[Verdict]) -> str:
    words = {True: "PASS", False: "FAIL", None: "-"}
    rows = [f"| {verdict.bar} | {verdict.found} | {words[verdict.passed]} |" for verdict in verdicts]
    return "\n".join(["| bar | found | |", "|---|---:|---|", *rows]) + "\n"


def as_json(outcome: Outcome) -> str:
    """All samples, for a later comparison."""
    kinds = {kind.name: asdict(kind) for kind in all_kinds().values()}
    values: dict[str, dict[str, Any]] = {
        name: {gateway: value(outcome.rounds, all_kinds()[name], gateway) for gateway in by_gateway}
        for name, by_gateway in outcome.rounds.items()
    }
    return (
        json.dumps(asdict(outcome) | {"kinds": kinds, "values": values}, ensure_ascii=False, indent=1) + "\n"
    )


def write(outcome: Outcome, with_page: bool) -> None:
    """Writes the JSON, and the tables into the page between its two marks."""
    LATEST.parent.mkdir(parents=True, exist_ok=True)
    LATEST.write_text(as_json(outcome))
    if with_page:
        write_between(PAGE, "results", as_markdown(outcome))


def write_between(page: Path, name: str, text: str) -> None:
    """Replaces what a page has between the marks of that name."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.read_text().partition(begin)
    after = rest.partition(end)[2]
    page.write_text(f"{before}{begin}\n\n{text}\n{end}{after}")
