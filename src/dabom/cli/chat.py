"""`dabom chat`: ask one question about text, pictures, video and sound; the answer is printed as it comes."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 Typer reads the annotations at run time
from typing import Annotated, Any

import msgspec
import typer

from dabom.cli.language import Language, choose_language, tell
from dabom.cli.options import takes
from dabom.client import Client, Part, Request, Usage, audio, image, request, schema_format, user, video
from dabom.errors import AskError, ClientError, ConfigError, DabomError, Refused

_INTERRUPTED = 130
_KEPT_CONTROLS = "\n\t"


@dataclass(frozen=True)
class ChatOptions:
    """What `dabom chat` is asked."""

    text: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="질문, -이면 표준 입력 · the question; - takes stdin"),
    ]
    image: Annotated[
        list[Path], typer.Option(metavar="FILE", help="그림 파일, 여러 번 가능 · picture; may be repeated")
    ] = field(default_factory=list)
    video: Annotated[list[Path], typer.Option(metavar="FILE", help="영상 파일 · video")] = field(
        default_factory=list
    )
    audio: Annotated[list[Path], typer.Option(metavar="FILE", help="소리 파일 · sound")] = field(
        default_factory=list
    )
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="모델, 기본은 첫 모델 · model; default: the first one")
    ] = None
    schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="답을 맞출 JSON Schema · JSON Schema of the answer")
    ] = None
    url: Annotated[
        str,
        typer.Option(metavar="URL", envvar="DABOM_URL", help="게이트웨이나 /v1 주소 · gateway or /v1 base"),
    ] = "http://127.0.0.1:8001"
    fps: Annotated[
        float | None, typer.Option(metavar="N", min=0.01, help="영상 초당 프레임 · frames per second")
    ] = None
    sound: Annotated[bool, typer.Option(help="영상 속 소리도 들음 · hear the sound of a video")] = True
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="답의 최대 토큰 · most tokens")
    ] = None
    json: Annotated[bool, typer.Option("--json", help="결과를 JSON 하나로 · one JSON object")] = False
    lang: Annotated[Language | None, typer.Option(metavar="ko|en", help="말할 언어 · language to speak")] = (
        None
    )


@takes(ChatOptions)
def chat(options: ChatOptions) -> None:
    """질문을 보내고 답을 오는 대로 출력합니다. · Ask; print the answer as it comes.

    키는 DABOM_API_KEY에서 읽습니다. · The key is read from DABOM_API_KEY.
    """
    language = choose_language(options.lang, os.environ)
    try:
        code = asyncio.run(_chat(options, language))
    except KeyboardInterrupt:
        _note("중단했습니다." if language == "ko" else "interrupted", before="\n")
        code = _INTERRUPTED
    except BrokenPipeError:
        # Whoever read stdout has left; the interpreter must not fail again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except DabomError as error:
        _note(tell(error, language, options.url))
        code = 1 if isinstance(error, AskError) else 2
    raise typer.Exit(code)


async def _chat(options: ChatOptions, language: Language) -> int:
    parts = await _parts(options)
    async with Client(options.url, api_key=os.environ.get("DABOM_API_KEY") or None) as client:
        model = options.model or await _first_model(client)
        return await _print_answer(client, _request(options, parts, model), options.json, language)


async def _parts(options: ChatOptions) -> list[Part]:
    question = sys.stdin.read() if options.text == "-" else options.text
    if not question.strip():
        raise ClientError("the question is empty; give a text")
    builders = [image(path) for path in options.image]
    builders += [video(path) for path in options.video]
    builders += [audio(path) for path in options.audio]
    media = await asyncio.gather(*builders)
    return [*media, *user(question).parts]


def _request(options: ChatOptions, parts: list[Part], model: str | None) -> Request:
    fields: dict[str, Any] = {"model": model, "max_tokens": options.max_tokens}
    if options.schema is not None:
        fields["response_format"] = schema_format(_schema(options.schema))
    if options.video and options.fps is not None:
        fields["media_io_kwargs"] = {"video": {"fps": options.fps}}
    if options.video and options.sound:
        fields["mm_processor_kwargs"] = {"use_audio_in_video": True}
    return request(user(*parts), **fields)


def _schema(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise ConfigError(f"--schema {path}: cannot be read ({error.strerror})") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ConfigError(f"--schema {path}: is no JSON object ({error})") from None


async def _first_model(client: Client) -> str | None:
    """The endpoint's first model; None when it lists none, which servers of one model accept."""
    try:
        models = await client.models()
    except Refused:
        return None
    return models[0].id if models else None


@dataclass
class _Answer:
    pieces: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Usage | None = None
    first_ms: int | None = None


async def _print_answer(client: Client, asked: Request, as_json: bool, language: Language) -> int:
    start = time.monotonic()
    answer = _Answer()
    try:
        async with aclosing(client.stream(asked)) as deltas:
            async for delta in deltas:
                if delta.text:
                    if answer.first_ms is None:
                        answer.first_ms = round((time.monotonic() - start) * 1000)
                    answer.pieces.append(delta.text)
                    if not as_json:
                        sys.stdout.write(_plain(delta.text))
                        sys.stdout.flush()
                answer.finish_reason = delta.finish_reason or answer.finish_reason
                answer.usage = delta.usage or answer.usage
    finally:
        if answer.pieces and not as_json:
            sys.stdout.write("\n")
            sys.stdout.flush()
    if as_json:
        sys.stdout.write(_as_json(answer, start) + "\n")
    if answer.finish_reason == "length":
        ko, en = (
            "답이 토큰 한도에서 잘렸습니다. --max-tokens를 늘리세요.",
            "cut at the token limit; raise --max-tokens",
        )
        _note(ko if language == "ko" else en)
    if not answer.pieces and not as_json:
        _note("빈 답이 왔습니다." if language == "ko" else "the answer is empty")
    return 0


def _as_json(answer: _Answer, start: float) -> str:
    return msgspec.json.encode(
        {
            "text": "".join(answer.pieces),
            "finish_reason": answer.finish_reason,
            "usage": answer.usage,
            "first_ms": answer.first_ms,
            "elapsed_ms": round((time.monotonic() - start) * 1000),
        }
    ).decode()


def _plain(text: str) -> str:
    """The text without control characters when a person reads it: a model must not drive the terminal."""
    if not sys.stdout.isatty():
        return text
    return "".join(char for char in text if char.isprintable() or char in _KEPT_CONTROLS)


def _note(text: str, before: str = "") -> None:
    sys.stderr.write(f"{before}{text}\n")
