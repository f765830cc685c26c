"""`dabom clips report`: what a run adds up to, on the terminal or as one HTML file."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dabom.cli.clips_shown import show_summary
from dabom.cli.clips_words import DATABASE, opened
from dabom.cli.language import Language, choose_language
from dabom.cli.options import takes
from dabom.clips.controls import KINDS, control_bytes
from dabom.clips.purge import report_path
from dabom.clips.report import Seen, report
from dabom.clips.results import read_results, summary
from dabom.errors import InvalidMedia, StoreError
from dabom.media.strip import strip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dabom.clips.results import Result
    from dabom.store import Run

_DRAWING = ("그리는 중", "drawing")


@dataclass(frozen=True)
class ReportOptions:
    """What `dabom clips report` is asked."""

    run: Annotated[str, typer.Argument(metavar="RUN", help="실행 · the run")]
    html: Annotated[
        bool, typer.Option("--html", help="HTML 파일 하나로, 인터넷 없이 열림 · one HTML file, opens offline")
    ] = False
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="HTML 파일, 기본은 클립 옆 · the HTML file; default: beside the clips"
        ),
    ] = None
    database: Annotated[
        str, typer.Option(metavar="URL", help="SQLite 파일이나 postgresql:// 주소 · file or URL")
    ] = DATABASE
    json: Annotated[bool, typer.Option("--json", help="요약을 JSON 하나로 · the summary as JSON")] = False
    lang: Annotated[Language | None, typer.Option(metavar="ko|en", help="말할 언어 · language to speak")] = (
        None
    )


@takes(ReportOptions)
def show_report(options: ReportOptions) -> None:
    """실행의 결과를 요약합니다. · Say what a run adds up to.

    --html은 클립 폴더에 report-RUN.html을 씁니다. 영상은 보고서가 클립 옆에 있을 때만 재생됩니다.
    · --html writes report-RUN.html beside the clips; a report elsewhere has no player.
    """
    language = choose_language(options.lang, os.environ)
    with opened(options.database, language, read_only=True) as runs:
        run = runs.find(options.run)
        results = read_results(runs, run)
        told = summary(run, results)
        if options.html or options.out is not None:
            path = options.out or report_path(run)
            _write(run, results, path, language)
            sys.stderr.write(f"{path}\n")
        if options.json:
            sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
        elif not options.html and options.out is None:
            show_summary(told, language)


def _write(run: Run, results: Sequence[Result], path: Path, language: Language) -> None:
    draft = path.with_name(f".{path.name}.part")
    console = Console(stderr=True)
    columns = (
        TextColumn(_DRAWING[language == "en"]),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    try:
        with (
            Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
            draft.open("w", encoding="utf-8") as file,
        ):
            task = progress.add_task("", total=len(results))
            look = _looker(run, path, lambda: progress.advance(task))
            file.writelines(report(run, results, summary(run, results), look, language))
        draft.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        draft.unlink(missing_ok=True)


def _looker(run: Run, path: Path, advance: Callable[[], None]) -> Callable[[Result], Seen]:
    place, beside = Path(run.place), path.absolute().parent

    def look(result: Result) -> Seen:
        advance()
        file = place / result.item.file
        try:
            content = file.read_bytes()
            kind = next((kind for kind in KINDS if kind == result.item.control), None)
            if kind is not None and result.item.facts.get("made"):
                content = control_bytes(content, kind)
            pictures = strip(content)
        except (OSError, InvalidMedia):
            return Seen()
        link = file.relative_to(beside).as_posix() if file.is_relative_to(beside) else None
        return Seen(pictures, link)

    return look
