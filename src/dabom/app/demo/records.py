"""What the check keeps: one line per call, and a summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

RESULTS = "results.jsonl"
SUMMARY = "summary.json"


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call: what it cost and what came back. Never the prompt or the media."""

    step: str
    id: str
    status: int
    elapsed_ms: float
    request_bytes: int = 0
    answer_bytes: int = 0
    request_id: str | None = None
    answer: str = ""
    error: str = ""


class Row(msgspec.Struct, frozen=True):
    """One row of the table."""

    item: str
    route: str
    checks: str
    result: str
    passed: bool


class Report(msgspec.Struct, frozen=True):
    """The outcome of a whole check; `batch` holds the times of the two ways."""

    url: str
    rows: list[Row]
    batch: dict[str, Any]
    calls: int
    out: str

    @property
    def passed(self) -> bool:
        """Every row passed."""
        return all(row.passed for row in self.rows)


def write_calls(folder: Path, calls: list[Call]) -> Path:
    """`results.jsonl` in that folder, replaced as a whole. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    return _replace(folder / RESULTS, b"".join(msgspec.json.encode(call) + b"\n" for call in calls))


def write_summary(folder: Path, report: Report) -> Path:
    """`summary.json` in that folder. Raises OSError."""
    told = {"passed": report.passed, **msgspec.to_builtins(report)}
    return _replace(folder / SUMMARY, msgspec.json.format(msgspec.json.encode(told), indent=2) + b"\n")


def _replace(path: Path, content: bytes) -> Path:
    """A reader of the file sees the old content or the new, never a half."""
    draft = path.with_suffix(".part")
    draft.write_bytes(content)
    return draft.replace(path)
