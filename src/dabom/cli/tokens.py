"""`dabom tokens`: what pictures, clips and sounds cost in a prompt, and how that comes about."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from mimetypes import guess_type
from pathlib import Path  # noqa: TC003 Typer reads the annotations at run time
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dabom.cli.language import Language, choose_language, tell
from dabom.cli.options import takes
from dabom.errors import ConfigError, DabomError, InvalidMedia
from dabom.families import FAMILIES, Cost, Edges, Family, Options, find, read_files, sentence
from dabom.media import sniff
from dabom.media.counted import Counted, count

_KINDS = {"image": ("그림", "picture"), "video": ("영상", "clip"), "audio": ("소리", "sound")}
_REFUSED = ("거절됨", "refused")
_HEADS = (
    ("파일", "file"),
    ("종류", "kind"),
    ("크기", "size"),
    ("길이", "length"),
    ("프레임", "frames"),
    ("보고", "reported"),
    ("프롬프트", "prompt"),
)


@dataclass(frozen=True)
class TokensOptions:
    """What `dabom tokens` is asked."""

    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="그림, 영상, 소리 파일 · pictures, clips, sounds")
    ]
    family: Annotated[
        str,
        typer.Option(
            metavar="F",
            help="모델 계열이나 모델 이름(qwen2-vl, qwen2.5-vl, qwen3-vl, qwen2.5-omni, qwen3-omni)"
            " · model family, or a model's name",
        ),
    ]
    fps: Annotated[
        float | None,
        typer.Option(metavar="X", min=0.01, help="초당 프레임 · frames a second"),
    ] = None
    max_pixels: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="요청의 최대 픽셀 · most pixels")
    ] = None
    min_pixels: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="요청의 최소 픽셀 · least pixels")
    ] = None
    use_audio_in_video: Annotated[
        bool, typer.Option("--use-audio-in-video", help="영상 속 소리도 셈 · count the sound of a clip too")
    ] = False
    preprocessor: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="체크포인트의 전처리 설정 폴더 · folder of a checkpoint's preprocessor files",
        ),
    ] = None
    json: Annotated[bool, typer.Option("--json", help="결과를 JSON 하나로 · one JSON object")] = False
    lang: Annotated[Language | None, typer.Option(metavar="ko|en", help="말할 언어 · language to speak")] = (
        None
    )


@dataclass(frozen=True)
class _Line:
    """One file: what it holds and what it costs, or why it cannot be read."""

    path: Path
    found: Counted
    cost: Cost
    fault: str | None = None

    @property
    def refused(self) -> bool:
        return self.fault is not None or self.cost.refusal is not None

    def error(self, language: Language = "en") -> str | None:
        """Why the server would refuse it."""
        refusal = self.cost.refusal
        return self.fault if refusal is None else sentence(refusal, language)


@takes(TokensOptions)
def tokens(options: TokensOptions) -> None:
    """그림, 영상, 소리가 몇 토큰인지 셉니다. · Count what pictures, clips and sounds cost.

    서버가 거절할 파일이 있으면 1로 끝납니다. · Exits 1 when the server would refuse one of them.
    """
    language = choose_language(options.lang, os.environ)
    try:
        family = _family(options)
        lines = [_line(path, family, options) for path in options.files]
    except DabomError as error:
        sys.stderr.write(tell(error, language) + "\n")
        raise typer.Exit(2) from None
    if options.json:
        sys.stdout.write(json.dumps(_as_json(family, lines), ensure_ascii=False) + "\n")
    else:
        _print(family, lines, language)
    raise typer.Exit(1 if any(line.refused for line in lines) else 0)


def _family(options: TokensOptions) -> Family:
    family = find(options.family)
    if family is None:
        raise ConfigError(
            f"--family {options.family}: unknown; one of {', '.join(FAMILIES)}, or a model's name"
        )
    folder = options.preprocessor
    if folder is None:
        return family
    try:
        return family.with_files(*read_files(folder))
    except OSError as error:
        raise ConfigError(f"--preprocessor {folder}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"--preprocessor {folder}: {error}") from None


def _line(path: Path, family: Family, options: TokensOptions) -> _Line:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidMedia(f"{path}: cannot be read ({error.strerror})") from None
    kind = (sniff(content[:512]) or "").partition("/")[0]
    if kind not in _KINDS:
        called = (guess_type(path.name)[0] or "").partition("/")[0]
        if called not in _KINDS:
            raise InvalidMedia(f"{path}: no picture, clip or sound of a kind that is read")
        return _Line(path, Counted(called), Cost({}, 0), _unread(content))
    try:
        found = count(content)
    except InvalidMedia as error:
        return _Line(path, Counted(kind), Cost({}, 0), error.message)
    edges = Edges(options.min_pixels, options.max_pixels)
    asked = Options(options.fps, None, edges, edges, options.use_audio_in_video)
    return _Line(path, found, _cost(found, family, asked))


def _unread(content: bytes) -> str:
    """Why a server refuses what only the name calls a picture, a clip or a sound."""
    if not content:
        return "the file is empty"
    if b"<svg" in content[:1024]:
        return "SVG is no picture of pixels; send it as PNG"
    return "no picture, clip or sound of a kind that is read"


def _cost(found: Counted, family: Family, asked: Options) -> Cost:
    if found.clip is not None:
        return family.video(found.clip, asked)
    if found.kind == "audio":
        return family.audio(found.audio_samples, found.audio_rate)
    return family.image(found.width, found.height, asked)


def _as_json(family: Family, lines: list[_Line]) -> dict[str, Any]:
    return {
        "family": family.name,
        "files": [_file(line) for line in lines],
        "total_prompt_tokens": sum(line.cost.prompt_tokens for line in lines),
    }


def _file(line: _Line) -> dict[str, Any]:
    found, cost = line.found, line.cost
    told: dict[str, Any] = {
        "path": str(line.path),
        "kind": found.kind,
        "width": found.width or None,
        "height": found.height or None,
        "seconds": round(found.seconds, 3) if found.kind != "image" else None,
        "frames_sampled": cost.frames_sampled,
        "tokens": _reported(cost),
        "prompt_tokens": None if line.refused else cost.prompt_tokens,
        "explain": cost.explain,
    }
    return {**told, "error": line.error()} if line.refused else told


def _reported(cost: Cost) -> int | dict[str, int] | None:
    """A number, or numbers by modality when there are several."""
    if not cost.tokens:
        return None
    numbers: dict[str, int] = dict(cost.tokens.items())
    return numbers if len(numbers) > 1 else next(iter(numbers.values()))


def _print(family: Family, lines: list[_Line], language: Language) -> None:
    side = 0 if language == "ko" else 1
    table = Table(box=SIMPLE, pad_edge=False, title=family.name, title_justify="left")
    for number, heads in enumerate(_HEADS):
        table.add_column(heads[side], justify="right" if number > 1 else "left", overflow="fold")
    for line in lines:
        table.add_row(*_row(line, side))
    console = Console(highlight=False)
    console.print(table)
    for line in lines:
        console.print(str(line.path), markup=False, soft_wrap=True)
        for step in line.cost.steps:
            console.print(f"  {sentence(step, language)}", markup=False, soft_wrap=True)
        if line.refused:
            console.print(f"  {_REFUSED[side]}: {line.error(language)}", markup=False, soft_wrap=True)
    total = sum(line.cost.prompt_tokens for line in lines)
    console.print(f"\n프롬프트 토큰 합계: {total:,}" if side == 0 else f"\nprompt tokens in all: {total:,}")


def _row(line: _Line, side: int) -> list[str]:
    found, cost = line.found, line.cost
    reported = f"{next(iter(cost.tokens.values())):,}" if cost.tokens else _REFUSED[side]
    return [
        escape(line.path.name),
        _KINDS[found.kind][side],
        f"{found.width}x{found.height}" if found.width else "",
        f"{found.seconds:.2f} s" if found.kind != "image" else "",
        "" if cost.frames_sampled is None else f"{cost.frames_sampled:,}",
        reported,
        "" if line.refused else f"{cost.prompt_tokens:,}",
    ]
