"""`dabom clips cut`: one recording into clips of one length."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 Typer reads the annotations at run time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dabom.cli.language import Language, choose_language, tell
from dabom.cli.options import takes
from dabom.clips.cut import Cut, Outcome, count_windows, cut_clips
from dabom.clips.profiles import find_profile
from dabom.clips.windows import read_clock
from dabom.errors import ClientError, ConfigError, DabomError

if TYPE_CHECKING:
    from dabom.clips.manifest import Clip

_INTERRUPTED = 130
_WORDS = {
    "cutting": ("자르는 중", "cutting"),
    "done": (
        "{source}: 클립 {made}개를 만들고 {kept}개는 그대로 두었습니다 → {out}",
        "{source}: {made} clips made, {kept} kept as they were, in {out}",
    ),
    "problems": ("  {code}: {count}개 ({first}{more})", "  {code}: {count} ({first}{more})"),
    "empty": (
        "  녹화가 끝나 만들지 못한 클립 {count}개: {first}부터",
        "  {count} clips were not made, the recording ends before: from {first} on",
    ),
    "interrupted": (
        "중단했습니다. 다 된 클립 {count}개는 남아 있고, 다시 실행하면 나머지를 자릅니다.",
        "interrupted: {count} finished clips stay, and the same command goes on from there",
    ),
}


@dataclass(frozen=True)
class CutOptions:
    """What `dabom clips cut` is asked."""

    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="녹화 파일 · the recording")]
    out: Annotated[Path, typer.Argument(metavar="OUT", help="클립을 둘 폴더 · folder for the clips")]
    start: Annotated[str, typer.Option(metavar="TIME", help="시작: 600, 10:00, 1:02:03 · where to begin")] = (
        "0"
    )
    end: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="끝, 없으면 녹화 끝까지 · where to stop, else at the end"),
    ] = None
    every: Annotated[float, typer.Option(metavar="S", min=0.1, help="클립 길이(초) · seconds of a clip")] = (
        6.0
    )
    profile: Annotated[
        str,
        typer.Option(
            metavar="P",
            help="lean 640x360 10fps, caption 1280x720 10fps, seed 원본 크기 1500kb/s"
            " · seed keeps the recording's size and rate",
        ),
    ] = "lean"
    sound: Annotated[
        str,
        typer.Option(
            metavar="LANG|N|none",
            help="소리 트랙: 언어(kor), 번호, none(무음) · sound by language or number; none: silence",
        ),
    ] = ""
    force: Annotated[
        bool, typer.Option("--force", help="이미 있는 클립도 다시 · make clips anew that are there already")
    ] = False
    json: Annotated[
        bool, typer.Option("--json", help="클립마다 JSON 한 줄 · one line of JSON for each clip")
    ] = False
    lang: Annotated[Language | None, typer.Option(metavar="ko|en", help="말할 언어 · language to speak")] = (
        None
    )


@takes(CutOptions)
def cut(options: CutOptions) -> None:
    """녹화를 같은 길이의 클립으로 자릅니다. · Cut a recording into clips of one length.

    프레임은 시각으로, 소리는 표본 단위로 자르고 OUT/manifest.jsonl에 기록합니다. 다 된 클립은 그대로 둡니다.
    · Frames are cut by time and sound by the sample; OUT/manifest.jsonl tells what each clip holds. Finished
    clips are kept, so that the same command goes on after an interruption.
    """
    language = choose_language(options.lang, os.environ)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a stop from outside ends as Ctrl-C does
    finished: list[Clip] = []
    try:
        order = _order(options)
        outcome = _run(order, options, finished, language)
    except KeyboardInterrupt:
        sys.stderr.write(_say("interrupted", language, count=len(finished)) + "\n")
        raise typer.Exit(_INTERRUPTED) from None
    except DabomError as error:
        sys.stderr.write(tell(error, language) + "\n")
        raise typer.Exit(2 if isinstance(error, ConfigError | ClientError) else 1) from None
    _summary(order, outcome, options.json, language)
    raise typer.Exit(0 if outcome.clips else 1)


def _order(options: CutOptions) -> Cut:
    return Cut(
        source=options.source,
        out=options.out,
        start_s=read_clock(options.start),
        end_s=None if options.end is None else read_clock(options.end),
        every_s=options.every,
        profile=find_profile(options.profile),
        sound=options.sound,
        force=options.force,
    )


def _run(order: Cut, options: CutOptions, finished: list[Clip], language: Language) -> Outcome:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    total = count_windows(order)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(_say("cutting", language), total=total)

        def each(clip: Clip) -> None:
            finished.append(clip)
            progress.advance(task)
            if options.json:
                sys.stdout.write(msgspec.json.encode(clip).decode() + "\n")
                sys.stdout.flush()

        return cut_clips(order, each)


def _summary(order: Cut, outcome: Outcome, as_json: bool, language: Language) -> None:
    lines = [
        _say(
            "done",
            language,
            source=order.source,
            made=len(outcome.made),
            kept=len(outcome.kept),
            out=order.out,
        )
    ]
    codes: dict[str, list[str]] = {}
    for clip in outcome.clips:
        for code in clip.problems:
            codes.setdefault(code, []).append(clip.clip)
    for code, names in sorted(codes.items()):
        more = ", …" if len(names) > 1 else ""
        lines.append(_say("problems", language, code=code, count=len(names), first=names[0], more=more))
    if outcome.empty:
        lines.append(_say("empty", language, count=len(outcome.empty), first=outcome.empty[0].name))
    (sys.stderr if as_json else sys.stdout).write("\n".join(lines) + "\n")


def _say(key: str, language: Language, **values: Any) -> str:
    return _WORDS[key][0 if language == "ko" else 1].format(**values)
