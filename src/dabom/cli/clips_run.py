"""`dabom clips run`: ask about every clip of a folder, and keep every answer."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from dabom.cli.clips_progress import bar
from dabom.cli.clips_shown import show_summary
from dabom.cli.clips_words import DATABASE, INTERRUPTED, fail, opened
from dabom.cli.language import Language, choose_language
from dabom.cli.options import takes
from dabom.client import Client
from dabom.client.clip import PROMPT
from dabom.clips.controls import KINDS, control_bytes
from dabom.clips.plan import CONTROLS, Form, RunSettings, family_name
from dabom.clips.results import read_results, summary
from dabom.clips.run import Runner
from dabom.clips.start import start_run
from dabom.errors import ConfigError, DabomError
from dabom.families import find

if TYPE_CHECKING:
    from dabom.client import Model
    from dabom.store import Run, Runs

_SAYS = {
    "begun": ("실행 {run}: 클립과 대조 클립 {count}개, {database}", "run {run}: {count} items, {database}"),
    "interrupted": (
        "중단했습니다. 이어서 하려면: dabom clips run --resume {run}{more}",
        "interrupted; to go on: dabom clips run --resume {run}{more}",
    ),
}


@dataclass(frozen=True)
class RunOptions:
    """What `dabom clips run` is asked."""

    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="클립 폴더(하위 폴더 포함) · folder of clips, at any depth"),
    ] = None
    model: Annotated[
        str | None, typer.Option(metavar="M", help="모델, 기본은 첫 모델 · model; default: the first one")
    ] = None
    family: Annotated[
        str | None,
        typer.Option(
            metavar="F", help="모델 계열, 이름으로 모를 때 · family, where the model's name does not tell it"
        ),
    ] = None
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="질문, @파일도 됨 · the question, or @FILE")] = (
        PROMPT
    )
    schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="답의 JSON Schema · JSON Schema of the answer")
    ] = None
    fps: Annotated[float, typer.Option(metavar="N", min=0.01, help="초당 프레임 · frames a second")] = 2.0
    form: Annotated[
        Form, typer.Option(metavar="video|frames", help="영상 하나, 또는 사진들과 WAV · one video, or frames")
    ] = "video"
    sound: Annotated[bool, typer.Option(help="소리도 들음 · hear the sound too")] = True
    temperature: Annotated[float, typer.Option(metavar="X", min=0.0)] = 0.3
    seed: Annotated[int, typer.Option(metavar="N")] = 0
    max_tokens: Annotated[int, typer.Option(metavar="N", min=1)] = 1024
    concurrency: Annotated[
        int, typer.Option(metavar="N", min=1, help="동시에 보낼 클립 수 · clips under way at once")
    ] = 8
    controls: Annotated[
        str, typer.Option(metavar="KINDS", help="대조 클립(blackout,mute,freeze) · controls to ask about too")
    ] = ""
    every: Annotated[
        int, typer.Option(metavar="N", min=1, help="N번째 클립마다 대조 클립 · controls of one clip in N")
    ] = 10
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="중단된 실행을 이어서 · go on with a run")
    ] = None
    database: Annotated[
        str, typer.Option(metavar="URL", help="SQLite 파일이나 postgresql:// 주소 · file or URL")
    ] = DATABASE
    url: Annotated[str, typer.Option(metavar="URL", envvar="DABOM_URL", help="게이트웨이 · gateway")] = (
        "http://127.0.0.1:8001"
    )
    json: Annotated[bool, typer.Option("--json", help="요약을 JSON 하나로 · the summary as JSON")] = False
    lang: Annotated[Language | None, typer.Option(metavar="ko|en", help="말할 언어 · language to speak")] = (
        None
    )


@takes(RunOptions)
def run(options: RunOptions) -> None:
    """폴더의 클립마다 모델에 묻고 답을 저장합니다. · Ask about every clip; keep the answers.

    중단되면 --resume으로 이어 가며, 끝난 클립은 다시 묻지 않습니다. 실패한 클립이 있으면 1로 끝납니다.
    · An interrupted run goes on with --resume; what has its answer is not asked again. Exits 1 when a clip
    failed.
    """
    language = choose_language(options.lang, os.environ)
    with opened(options.database, language) as runs:
        found: list[Run] = []
        try:
            asyncio.run(_run(options, runs, language, found))
        except (KeyboardInterrupt, asyncio.CancelledError):
            _interrupted(runs, found, options, language)
            raise typer.Exit(INTERRUPTED) from None
        except DabomError as error:
            _interrupted(runs, found, options, language)
            fail(error, language, options.url)
        done = runs.find(found[0].id)
        told = summary(done, read_results(runs, done))
    if options.json:
        sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
    else:
        show_summary(told, language)
    raise typer.Exit(1 if told["failed"] else 0)


def _interrupted(runs: Runs, found: list[Run], options: RunOptions, language: Language) -> None:
    if not found:
        return
    runs.set_state(found[0].id, "interrupted")
    more = "" if options.database == DATABASE else " --database …"
    _say("interrupted", language, run=found[0].id, more=more)


def _say(key: str, language: Language, **values: object) -> None:
    sys.stderr.write(_SAYS[key][language == "en"].format(**values) + "\n")


async def _run(options: RunOptions, runs: Runs, language: Language, found: list[Run]) -> None:
    if task := asyncio.current_task():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    key = os.environ.get("DABOM_API_KEY") or None
    async with Client(options.url, api_key=key) as client:
        run = await _begin(options, runs, client)
        with runs.held(run.id):
            found.append(run)
            await asyncio.to_thread(runs.set_state, run.id, "running")
            counts = await asyncio.to_thread(runs.counts, run.id)
            _say("begun", language, run=run.id, count=sum(counts.values()), database=runs.name)
            with bar(counts, language) as tick:
                runner = Runner(
                    client,
                    runs,
                    run,
                    make_control=_make_control,
                    concurrency=options.concurrency,
                    tick=tick,
                )
                await runner.work()
            await asyncio.to_thread(runs.set_state, run.id, "finished")


async def _begin(options: RunOptions, runs: Runs, client: Client) -> Run:
    if options.resume is not None:
        if options.folder is not None:
            raise ConfigError("--resume goes on in the run's own folder and asks as it did; leave DIR out")
        return await asyncio.to_thread(runs.find, options.resume)
    if options.folder is None:
        raise ConfigError("give the folder of the clips, or --resume RUN")
    settings, server = _settings(options, await client.models(), client.root)
    return await asyncio.to_thread(start_run, runs, options.folder, settings, server)


def _settings(options: RunOptions, models: list[Model], root: str) -> tuple[RunSettings, str]:
    model = options.model or next((model.id for model in models), None)
    if model is None:
        raise ConfigError(f"{root} tells no model; name one with --model")
    known = next((row for row in models if row.id == model), None)
    told = f" ({known.owned_by})" if known is not None and known.owned_by else ""
    settings = RunSettings(
        model=model,
        family=_family(options, model),
        prompt=_prompt(options.prompt),
        schema=_schema(options.schema),
        fps=options.fps,
        form=options.form,
        sound=options.sound,
        temperature=options.temperature,
        seed=options.seed,
        max_tokens=options.max_tokens,
        controls=_controls(options.controls),
        every=options.every,
    )
    return settings, root + told


def _make_control(content: bytes, kind: str) -> bytes:
    return control_bytes(content, next(known for known in KINDS if known == kind))


def _family(options: RunOptions, model: str) -> str:
    if options.family is None:
        return family_name(model)
    family = find(options.family)
    if family is None:
        raise ConfigError(f"--family {options.family}: is no family that is known; see dabom tokens --help")
    return family.name


def _controls(text: str) -> tuple[str, ...]:
    kinds = tuple(dict.fromkeys(kind.strip() for kind in text.split(",") if kind.strip()))
    for kind in kinds:
        if kind not in CONTROLS:
            raise ConfigError(f"--controls {kind}: a run makes {', '.join(CONTROLS)}")
    return kinds


def _prompt(text: str) -> str:
    if not text.startswith("@"):
        found = text
    else:
        try:
            found = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"--prompt {text}: cannot be read as UTF-8 text") from None
    if not found.strip():
        raise ConfigError("--prompt: the question is empty")
    return found


def _schema(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        raise ConfigError(f"--schema {path}: cannot be read as JSON") from None
    if not isinstance(found, dict):
        raise ConfigError(f"--schema {path}: a JSON Schema is an object")
    return found
