"""`dabom clips runs`, `export` and `purge`: what is kept of runs, given out, and removed again."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path  # noqa: TC003 Typer reads the annotations at run time
from typing import Annotated, Any

import msgspec
import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from dabom.cli.clips_words import DATABASE, fail, opened
from dabom.cli.language import Language, choose_language
from dabom.cli.options import takes
from dabom.clips.export import Format, rows_of, write_file, write_rows
from dabom.clips.purge import Purged, purge, read_age
from dabom.clips.results import read_results
from dabom.errors import ConfigError, DabomError

_PIPE_COLUMNS = 140
_HEADS = (
    ("실행", "run"),
    ("시작", "began"),
    ("상태", "state"),
    ("모델", "model"),
    ("프로토콜", "protocol"),
    ("완료", "done"),
    ("실패", "failed"),
    ("남음", "open"),
)
_STATES = {"running": "진행 중", "interrupted": "중단됨", "finished": "끝남"}
_SAYS = {
    "removed": (
        "실행 {run}: 결과 {items}개와 클립 {media}개({size:,} 바이트)를 지웠습니다.{more}",
        "run {run}: {items} results and {media} clips ({size:,} bytes) removed{more}",
    ),
    "would": (
        "실행 {run}: 결과 {items}개와 클립 {media}개({size:,} 바이트)를 지우게 됩니다.{more}",
        "run {run}: {items} results and {media} clips ({size:,} bytes) would be removed{more}",
    ),
    "more": (
        " 남긴 클립: 더 새로운 실행이 씀 {kept}, 바뀜 {changed}; 이미 없음 {missing}.",
        "; clips left: {kept} that a younger run asks about, {changed} changed; {missing} were gone",
    ),
    "skipped": ("실행 {run}: 건너뜀 ({why})", "run {run}: skipped ({why})"),
    "none": ("지울 실행이 없습니다.", "no run is that old"),
}


@dataclass(frozen=True)
class _Kept:
    """Where runs are kept."""

    database: Annotated[
        str, typer.Option(metavar="URL", help="SQLite 파일이나 postgresql:// 주소 · file or URL")
    ] = DATABASE
    json: Annotated[bool, typer.Option("--json", help="결과를 JSON 하나로 · one JSON value")] = False
    lang: Annotated[Language | None, typer.Option(metavar="ko|en", help="말할 언어 · language to speak")] = (
        None
    )


@dataclass(frozen=True)
class ExportOptions:
    """What `dabom clips export` is asked."""

    run: Annotated[str, typer.Argument(metavar="RUN", help="실행 · the run")]
    format: Annotated[Format, typer.Option(metavar="jsonl|csv|parquet|xlsx", help="형식 · format")] = "jsonl"
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="파일, 기본은 표준 출력 · file; default: stdout")
    ] = None
    database: Annotated[
        str, typer.Option(metavar="URL", help="SQLite 파일이나 postgresql:// 주소 · file or URL")
    ] = DATABASE
    lang: Annotated[Language | None, typer.Option(metavar="ko|en", help="말할 언어 · language to speak")] = (
        None
    )


@dataclass(frozen=True)
class PurgeOptions(_Kept):
    """What `dabom clips purge` is asked."""

    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="이보다 오래된 실행(12h, 30d, 2w) · runs older than that")
    ] = ""
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="지우지 않고 무엇을 지울지만 · say what would be removed")
    ] = False


@takes(_Kept)
def list_runs(options: _Kept) -> None:
    """저장된 실행을 보입니다. · Show the runs that are kept."""
    language = choose_language(options.lang, os.environ)
    with opened(options.database, language, read_only=True) as runs:
        rows = [
            {**msgspec.to_builtins(run), "settings": None, **_counts(runs.counts(run.id))}
            for run in runs.all()
        ]
    if options.json:
        for row in rows:
            del row["settings"]
        sys.stdout.write(msgspec.json.encode(rows).decode() + "\n")
        return
    table = Table(box=SIMPLE, pad_edge=False)
    for number, heads in enumerate(_HEADS):
        table.add_column(heads[language == "en"], justify="right" if number > 4 else "left", overflow="fold")
    for row in rows:
        table.add_row(*_cells(row, language))
    Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS, highlight=False, markup=False).print(table)


def _counts(counts: dict[str, int]) -> dict[str, int]:
    return {state: counts.get(state, 0) for state in ("done", "failed", "open")}


def _cells(row: dict[str, Any], language: Language) -> list[str]:
    began = datetime.fromtimestamp(row["created_at"], UTC).strftime("%Y-%m-%d %H:%M UTC")
    state = _STATES[row["state"]] if language == "ko" else row["state"]
    counts = [str(row[name]) for name in ("done", "failed", "open")]
    return [row["id"], began, state, row["model"], row["protocol"], *counts]


@takes(ExportOptions)
def export(options: ExportOptions) -> None:
    """실행의 결과를 표로 내보냅니다. · Write the results as a table."""
    language = choose_language(options.lang, os.environ)
    with opened(options.database, language, read_only=True) as runs:
        run = runs.find(options.run)
        rows = rows_of(run, read_results(runs, run))
        if options.out is not None:
            write_file(rows, options.format, options.out)
            return
        if options.format in {"parquet", "xlsx"} and sys.stdout.isatty():
            raise ConfigError(f"--format {options.format} is not text; name a file with --out")
        write_rows(rows, options.format, sys.stdout.buffer)
        sys.stdout.buffer.flush()


@takes(PurgeOptions)
def purge_runs(options: PurgeOptions) -> None:
    """오래된 실행의 클립과 결과를 지우고 감사 기록을 남깁니다. · Remove old runs; audit it.

    클립은 실행 때와 같은 파일이고 더 새로운 실행이 쓰지 않을 때만 지웁니다. · A clip is removed only while it
    is the file that was asked about, and no younger run asks about it.
    """
    language = choose_language(options.lang, os.environ)
    try:
        age_s = read_age(options.older_than)
    except DabomError as error:
        fail(error, language)
    now = time.time()
    with opened(options.database, language, read_only=options.dry_run) as runs:
        found = purge(runs, now - age_s, now, dry_run=options.dry_run)
    if options.json:
        told = [{**msgspec.to_builtins(one), "dry_run": options.dry_run} for one in map(_as_json, found)]
        sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
    else:
        side = int(language == "en")
        lines = [_line(one, side, options.dry_run) for one in found] or [_SAYS["none"][side]]
        sys.stdout.write("\n".join(lines) + "\n")


def _as_json(one: Purged) -> dict[str, Any]:
    fields = {name: getattr(one, name) for name in Purged.__slots__}
    return {**fields, "media": [str(path) for path in one.media]}


def _line(one: Purged, side: int, dry_run: bool) -> str:
    if one.skipped:
        return _SAYS["skipped"][side].format(run=one.run, why=one.skipped)
    more = ""
    if one.kept or one.changed or one.missing:
        more = _SAYS["more"][side].format(kept=one.kept, changed=one.changed, missing=one.missing)
    pattern = _SAYS["would" if dry_run else "removed"][side]
    return pattern.format(run=one.run, items=one.items, media=len(one.media), size=one.media_bytes, more=more)
