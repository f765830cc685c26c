"""`dabom check`: what a configuration makes of each kind of request, and what is wrong with it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  # typer reads it
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dabom.app import read_settings
from dabom.app.config.document import Flaw
from dabom.app.config.outlook import KINDS, UNKNOWN, Prospect, foresee, nameless
from dabom.app.litellm import convert
from dabom.cli.language import Language, choose_language
from dabom.cli.options import takes
from dabom.errors import ConfigError
from dabom.gateway.routing import target_name

if TYPE_CHECKING:
    from dabom.app import Reading
    from dabom.gateway import GatewaySettings, UpstreamSettings

_PIPE_COLUMNS = 150
_WORDS = {
    "requests": ("요청이 가는 곳", "Where requests go"),
    "upstreams": ("업스트림", "Upstreams"),
    "model": ("모델", "model"),
    "text": ("글", "text"),
    "image": ("그림", "picture"),
    "video": ("클립", "clip"),
    "audio": ("소리", "sound"),
    "name": ("이름", "name"),
    "kind": ("종류", "kind"),
    "address": ("주소", "address"),
    "takes": ("받는 것", "takes"),
    "concurrency": ("동시 요청", "permits"),
    "tokens": ("토큰 예산", "token budget"),
    "unknown": ("(모르는 이름)", "(unknown name)"),
    "anything": ("모두", "all"),
    "unbounded": ("없음", "none"),
    "legend": (
        "→ 앞이 실패하면 다음 · = 부하를 나누는 복제본 · auto: 그 모델이 받지 못해 auto 규칙으로",
        "→ the next when one fails · = replicas that share the load · auto: the named model cannot take it",
    ),
    "learned": (
        "다음 업스트림의 모델 이름은 실행 중에 배웁니다: {names}",
        "the model names of these upstreams are learned when they run: {names}",
    ),
    "right": ("설정에 잘못이 없습니다.", "The configuration has no mistakes."),
    "mistake": ("잘못", "mistake"),
    "warning": ("주의", "warning"),
    "reader": (
        "업스트림이 없습니다: 내장 리더가 모든 요청을 받습니다.",
        "There is no upstream: the built-in reader gets every request.",
    ),
    "dropped": ("옮기지 못한 것", "not carried over"),
    "noted": ("확인할 것", "look at this"),
    "out_alone": ("--out은 --import와 함께 씁니다", "--out goes with --import"),
    "both": ("--import와 --config 중 하나만 쓰세요", "give --import or --config, not both"),
    "exists": ("{file}이(가) 이미 있습니다; 다른 이름을 주세요", "{file} exists already; give another name"),
    "no_file": (
        "{file}을(를) 읽을 수 없습니다: 그런 파일이 없습니다",
        "{file} cannot be read: there is no such file",
    ),
    "odd_file": (
        "{file}을(를) 읽을 수 없습니다: 일반 파일이 아닙니다",
        "{file} cannot be read: it is no plain file",
    ),
    "wrote": ("{file}에 썼습니다. dabom check --config {file}", "wrote {file}; dabom check --config {file}"),
}


@dataclass(frozen=True)
class CheckOptions:
    """What `dabom check` looks at."""

    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="설정 파일 · YAML file with settings")
    ] = None
    import_: Annotated[
        Path | None,
        typer.Option("--import", metavar="FILE", help="LiteLLM 설정을 옮김 · turn a LiteLLM file into ours"),
    ] = None
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="옮긴 설정을 쓸 곳 · where to write what is turned")
    ] = None
    json: Annotated[bool, typer.Option("--json", help="표 대신 JSON 하나 · one JSON object, no table")] = (
        False
    )
    lang: Annotated[Language | None, typer.Option(metavar="ko|en", help="말할 언어 · language to speak")] = (
        None
    )


@takes(CheckOptions)
def check(options: CheckOptions) -> None:
    """설정을 점검하고 경로를 보입니다. · Check settings; show the routes of requests.

    업스트림에는 묻지 않습니다. 잘못이 있으면 1로 끝납니다. --import는 LiteLLM 설정 파일을 옮깁니다.
    · No upstream is asked. It ends with 1 when there is a mistake. --import turns a LiteLLM file into ours.
    """
    raise typer.Exit(_Check(options, choose_language(options.lang, os.environ)).run())


class _Check:
    def __init__(self, options: CheckOptions, language: Language) -> None:
        self._options = options
        self._side = 0 if language == "ko" else 1

    def run(self) -> int:
        """The exit code."""
        options = self._options
        if options.out is not None and options.import_ is None:
            return self._misused("out_alone")
        if options.config is not None and options.import_ is not None:
            return self._misused("both")
        file = options.import_ or options.config
        if file is not None and not file.is_file():
            return self._misused("odd_file" if file.exists() else "no_file", file=file)
        if options.out is not None and options.out.exists():
            return self._misused("exists", file=options.out)
        try:
            return self._import() if options.import_ is not None else self._look()
        except ConfigError as error:
            return self._refuse((Flaw(error.message),))

    def _word(self, name: str, **values: object) -> str:
        return _WORDS[name][self._side].format(**values)

    def _misused(self, name: str, **values: object) -> int:
        sys.stderr.write(self._word(name, **values) + "\n")
        return 2

    def _tell(self, what: str, lines: tuple[Flaw, ...] | tuple[str, ...]) -> None:
        for line in lines:
            sys.stderr.write(f"{self._word(what)}: {line}\n")

    def _refuse(self, flaws: tuple[Flaw, ...]) -> int:
        self._tell("mistake", flaws)
        if self._options.json:
            _write_json({"ok": False, "mistakes": _flat(flaws), "warnings": [], "requests": []})
        return 1

    def _look(self) -> int:
        reading = read_settings(self._options.config)
        if reading.settings is None:
            return self._refuse(reading.flaws)
        self._tell("warning", reading.warnings)
        settings = reading.settings.gateway()
        if self._options.json:
            _write_json(_for_programs(reading, settings))
        else:
            self._show(settings)
        return 0

    def _show(self, settings: GatewaySettings) -> None:
        console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
        if not settings.upstreams:
            console.print(self._word("reader"))
            return
        console.print(self._requests(foresee(settings)))
        console.print(self._word("legend"), style="dim")
        console.print(self._upstreams(settings))
        if names := list(nameless(settings)):
            console.print(self._word("learned", names=", ".join(names)), markup=False)
        console.print(self._word("right"))

    def _requests(self, prospects: list[Prospect]) -> Table:
        table = Table(title=self._word("requests"))
        for column in ("model", *KINDS):
            table.add_column(self._word(column), overflow="fold")
        rows: dict[str, list[str]] = {}
        for one in prospects:
            rows.setdefault(one.model, []).append(_cell(one))
        for model, cells in rows.items():
            shown = self._word("unknown") if model == UNKNOWN else model
            table.add_row(*(escape(cell) for cell in (shown, *cells)))
        return table

    def _upstreams(self, settings: GatewaySettings) -> Table:
        table = Table(title=self._word("upstreams"))
        for column in ("name", "kind", "address", "model", "takes", "concurrency", "tokens"):
            table.add_column(self._word(column), overflow="fold")
        for one in settings.upstreams:
            takes_ = self._word("anything") if one.modalities is None else _takes(one)
            budget = self._word("unbounded") if one.token_budget is None else f"{one.token_budget:,}"
            permits = str(one.concurrency or settings.concurrency)
            cells = (target_name(one), one.kind, _address(one), one.model or "", takes_, permits, budget)
            table.add_row(*(escape(cell) for cell in cells))
        return table

    def _import(self) -> int:
        assert self._options.import_ is not None  # noqa: S101 - `run` looked
        made = convert(self._options.import_)
        if self._options.json:
            _write_json({"ok": True, "yaml": made.text, "not_carried": made.dropped, "notes": made.notes})
        self._tell("dropped", tuple(made.dropped))
        self._tell("noted", tuple(made.notes))
        if self._options.out is not None:
            self._options.out.write_text(made.text, encoding="utf-8")
            sys.stderr.write(self._word("wrote", file=self._options.out) + "\n")
        elif not self._options.json:
            sys.stdout.write(made.text)
        return 0


def _cell(one: Prospect) -> str:
    if one.decision is None:
        return f"✗ {one.refusal.status} {one.refusal.code}" if one.refusal else "✗"
    steps = " → ".join(" = ".join(step) for step in one.decision.steps)
    return f"auto: {steps}" if one.decision.reason == "modality" else steps


def _takes(one: UpstreamSettings) -> str:
    return ", ".join(sorted((one.modalities or frozenset()) | {"text"}))


def _address(one: UpstreamSettings) -> str:
    return one.url if one.gguf is None else str(one.gguf)


def _flat(flaws: tuple[Flaw, ...]) -> list[dict[str, Any]]:
    return [
        {"line": flaw.line, "file": flaw.file and str(flaw.file), "message": flaw.message} for flaw in flaws
    ]


def _for_programs(reading: Reading, settings: GatewaySettings) -> dict[str, Any]:
    return {
        "ok": True,
        "mistakes": [],
        "warnings": _flat(reading.warnings),
        "upstreams": [
            {
                "name": target_name(one),
                "kind": one.kind,
                "url": one.url or None,
                "model": one.model,
                "modalities": None if one.modalities is None else sorted(one.modalities),
                "concurrency": one.concurrency or settings.concurrency,
                "token_budget": one.token_budget,
            }
            for one in settings.upstreams
        ],
        "requests": [one.told() for one in foresee(settings)] if settings.upstreams else [],
    }


def _write_json(told: dict[str, Any]) -> None:
    sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
