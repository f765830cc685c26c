"""The progress bar of a run: how many, how fast, how long still, how many failed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.progress import Task

    from dabom.cli.language import Language
    from dabom.clips.read import Outcome

_WORDS = {
    "asking": ("묻는 중", "asking"),
    "rate": ("분당 {rate:.1f}개", "{rate:.1f}/min"),
    "failed": ("실패 {failed}, 재시도 {again}", "{failed} failed, {again} again"),
}


class _Rate(ProgressColumn):
    def __init__(self, side: int) -> None:
        super().__init__()
        self._side = side

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(_WORDS["rate"][self._side].format(rate=speed * 60) if speed else "")


@contextmanager
def bar(counts: Mapping[str, int], language: Language) -> Iterator[Callable[[Outcome], None]]:
    """Called with each stored attempt; draws nothing unless stderr is a terminal."""
    side = 0 if language == "ko" else 1
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(side),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[told]}"),
    )
    failed = again = 0

    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        total = sum(counts.values())
        task = progress.add_task(_WORDS["asking"][side], total=total, told="")
        progress.update(task, completed=total - counts.get("open", 0))

        def tick(outcome: Outcome) -> None:
            nonlocal failed, again
            failed += outcome.state == "failed"
            again += outcome.state == "open"
            told = _WORDS["failed"][side].format(failed=failed, again=again) if failed or again else ""
            progress.update(task, advance=outcome.state != "open", told=told)

        yield tick
