"""A run's summary as tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from dabom.cli.clips_words import CLAIMS
from dabom.clips.report_words import code_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dabom.cli.language import Language

_PIPE_COLUMNS = 120
_HEADS = (
    ("카테고리", "category"),
    ("클립", "clips"),
    ("완료", "done"),
    ("실패", "failed"),
    ("성공률(95 %)", "success (95 %)"),
    ("p50 ms", "p50 ms"),
    ("p90 ms", "p90 ms"),
)
_CONTROL_HEADS = (
    ("대조", "control"),
    ("판정", "claim"),
    ("카테고리", "category"),
    ("개수", "count"),
    ("비율(95 %)", "rate (95 %)"),
)
_WORDS = {
    "title": ("실행 {run} · {model} · {protocol}", "run {run} · {model} · {protocol}"),
    "total": (
        "완료 {done}, 실패 {failed}, 남음 {open} · 요청 {attempts}회 · 분당 {rate}개 · 토큰 {tokens}",
        "{done} done, {failed} failed, {open} open · {attempts} requests · {rate} a minute · {tokens} tokens",
    ),
    "all": ("전체", "all"),
}


def show_summary(told: Mapping[str, Any], language: Language) -> None:
    """Print what `results.summary` gives."""
    side = 0 if language == "ko" else 1
    console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS, highlight=False, markup=False)
    title = _WORDS["title"][side].format(**{key: told[key] for key in ("run", "model", "protocol")})
    console.print(_table(title, _HEADS, side, [_category(row) for row in told["categories"]]))
    if told["controls"]:
        rows = [_control(row, side) for row in told["controls"]]
        console.print(_table("", _CONTROL_HEADS, side, rows))
    for code, count in told["codes"].items():
        console.print(f"  {count:>5}  {code_words(code, side)}", soft_wrap=True)
    tokens = told["tokens"]
    line = _WORDS["total"][side].format(
        **{key: told[key] for key in ("done", "failed", "open", "attempts")},
        rate=told["clips_a_minute"] or "-",
        tokens=f"{tokens['prompt_tokens']:,} + {tokens['completion_tokens']:,}",
    )
    console.print(line, soft_wrap=True)


def _table(title: str, heads: tuple[tuple[str, str], ...], side: int, rows: list[list[str]]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False, title=title or None, title_justify="left")
    for number, names in enumerate(heads):
        table.add_column(names[side], justify="left" if number == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _category(row: Mapping[str, Any]) -> list[str]:
    latency = row["latency_ms"]
    return [
        row["category"],
        str(row["clips"]),
        str(row["done"]),
        str(row["failed"]),
        _rate(row),
        *(f"{latency[key]:,.0f}" if latency else "-" for key in ("p50", "p90")),
    ]


def _control(row: Mapping[str, Any], side: int) -> list[str]:
    return [
        row["control"],
        CLAIMS[row["claim"]][side],
        row["category"] or _WORDS["all"][side],
        f"{row['count']}/{row['total']}",
        _rate(row),
    ]


def _rate(row: Mapping[str, Any]) -> str:
    return f"{row['rate']:.0%} ({row['low']:.0%}-{row['high']:.0%})"
