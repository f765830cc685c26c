"""`dabom clips table`: folders of clips as a table."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 Typer reads the annotations at run time
from typing import Annotated

import msgspec
import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from dabom.cli.language import Language, choose_language, tell
from dabom.cli.options import takes
from dabom.clips.table import Row, read_rows
from dabom.errors import ConfigError, DabomError

_HEADS = (
    ("카테고리", "category"),
    ("이름", "name"),
    ("클립 수", "clips"),
    ("해상도", "resolution"),
    ("fps", "fps"),
    ("평균 크기", "mean size"),
    ("비고", "problems"),
)
_GENRES = {
    "news": "뉴스",
    "docu": "다큐",
    "baseball": "야구 중계",
    "entertain": "예능",
    "drama": "현대 드라마",
    "hist_drama": "사극",
    "esports": "e스포츠",
}
_MB = 1_000_000
_PIPE_COLUMNS = 140


@dataclass(frozen=True)
class TableOptions:
    """What `dabom clips table` is asked."""

    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="클립 폴더나 그 위 폴더 · a folder of clips, or one above (data/clips)"
        ),
    ]
    json: Annotated[
        bool, typer.Option("--json", help="폴더마다 JSON 한 줄 · one line of JSON for each folder")
    ] = False
    lang: Annotated[Language | None, typer.Option(metavar="ko|en", help="말할 언어 · language to speak")] = (
        None
    )


@takes(TableOptions)
def table(options: TableOptions) -> None:
    """클립 폴더를 표로 보입니다. · Show folders of clips as a table.

    카테고리, 클립 수, 해상도, fps, 평균 크기. · Category, clips, resolution, fps, mean size.
    """
    language = choose_language(options.lang, os.environ)
    try:
        rows = read_rows(options.folder)
        if not rows:
            raise ConfigError(f"{options.folder}: holds no clips; cut some with dabom clips cut")
    except DabomError as error:
        sys.stderr.write(tell(error, language) + "\n")
        raise typer.Exit(2) from None
    if options.json:
        for row in rows:
            sys.stdout.write(msgspec.json.encode(row).decode() + "\n")
        return
    _print(rows, language)


def _print(rows: list[Row], language: Language) -> None:
    side = 0 if language == "ko" else 1
    shown = Table(box=SIMPLE, pad_edge=False, show_footer=len(rows) > 1)
    clips = sum(row.clips for row in rows)
    mean = sum(row.clips * row.mean_bytes for row in rows) / clips
    feet = (("합계", "total")[side], "", f"{clips:,}", "", "", f"≈ {mean / _MB:.2f} MB", "")
    for number, heads in enumerate(_HEADS):
        right = number in {2, 4, 5}
        shown.add_column(heads[side], feet[number], justify="right" if right else "left", overflow="fold")
    for row in rows:
        genre = _GENRES.get(row.category) if side == 0 else None
        problems = ", ".join(f"{code} {count}" for code, count in row.problems.items())
        shown.add_row(
            f"{row.category} {genre}" if genre else row.category,
            row.name,
            f"{row.clips:,}",
            row.resolution,
            f"{row.fps:g}",
            f"{row.mean_bytes / _MB:.2f} MB",
            problems,
        )
    Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _PIPE_COLUMNS).print(shown)
