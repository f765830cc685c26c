"""`dabom clips control`: clips with one modality removed or exchanged."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 Typer reads the annotations at run time
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from dabom.cli.language import Language, choose_language, tell
from dabom.cli.options import takes
from dabom.clips.controls import KINDS, choose_other, make_control
from dabom.errors import ClientError, ConfigError, DabomError
from dabom.media.controls import ControlKind  # noqa: TC001 Typer reads the annotations at run time

if TYPE_CHECKING:
    from dabom.clips.manifest import Clip

_INTERRUPTED = 130


@dataclass(frozen=True)
class ControlOptions:
    """What `dabom clips control` is asked."""

    clip: Annotated[
        Path, typer.Argument(metavar="CLIP", help="클립, 또는 클립 폴더 · a clip, or a folder of clips")
    ]
    out: Annotated[Path, typer.Argument(metavar="OUT", help="대조 클립을 둘 폴더 · folder for the controls")]
    kind: Annotated[
        ControlKind,
        typer.Option(
            metavar="|".join(KINDS),
            help="검은 화면, 무음, 정지 화면, 다른 클립의 소리 · black, mute, first picture, another's sound",
        ),
    ] = "blackout"
    every: Annotated[
        int, typer.Option(metavar="N", min=1, help="폴더에서 N개마다 하나 · of a folder, one clip in N")
    ] = 1
    sound_of: Annotated[
        Path | None, typer.Option(metavar="CLIP", help="swap-audio의 소리 · whose sound swap-audio takes")
    ] = None
    force: Annotated[
        bool, typer.Option("--force", help="이미 있어도 다시 · make anew what is there already")
    ] = False
    json: Annotated[
        bool, typer.Option("--json", help="대조 클립마다 JSON 한 줄 · one line of JSON for each control")
    ] = False
    lang: Annotated[Language | None, typer.Option(metavar="ko|en", help="말할 언어 · language to speak")] = (
        None
    )


@takes(ControlOptions)
def control(options: ControlOptions) -> None:
    """화면이나 소리를 뺀 대조 클립을 만듭니다. · Make clips with one modality removed.

    남긴 쪽은 패킷을 그대로 복사하므로 해시가 같고, 토큰 수도 같습니다.
    · The packets of what stays are copied: same hash, and the same number of tokens.
    """
    language = choose_language(options.lang, os.environ)
    try:
        made = [_make(clip, options) for clip in _chosen(options)]
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    except DabomError as error:
        sys.stderr.write(tell(error, language) + "\n")
        raise typer.Exit(2 if isinstance(error, ConfigError | ClientError) else 1) from None
    if not options.json:
        told = (
            "대조 클립({kind}) {count}개 → {out}" if language == "ko" else "{count} {kind} controls in {out}"
        )
        sys.stdout.write(told.format(kind=options.kind, count=len(made), out=options.out) + "\n")


def _chosen(options: ControlOptions) -> list[Path]:
    if not options.clip.is_dir():
        return [options.clip]
    clips = _in_folder(options.clip)
    if not clips:
        raise ConfigError(f"{options.clip}: holds no clip (*.mp4)")
    return clips[:: options.every]


def _in_folder(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.mp4") if not path.name.startswith("."))


def _make(clip: Path, options: ControlOptions) -> Clip:
    other = options.sound_of
    if options.kind == "swap-audio" and other is None:
        other = choose_other(clip, _in_folder(clip.parent))
    made = make_control(clip, options.out, options.kind, other, force=options.force)
    if options.json:
        sys.stdout.write(msgspec.json.encode(made).decode() + "\n")
        sys.stdout.flush()
    return made
