"""`dabom demo`: the six-step check on the samples, against a gateway of its own or a given one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dabom.app.demo import Check, Report, find_samples, started_gateway
from dabom.app.demo.words import say
from dabom.cli.language import Language, choose_language, tell
from dabom.cli.options import takes
from dabom.client import Client
from dabom.errors import ClientError, ConfigError, DabomError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dabom.app.demo import Samples

_INTERRUPTED = 130
_PIPE_COLUMNS = 140


@dataclass(frozen=True)
class DemoOptions:
    """How `dabom demo` runs."""

    once: Annotated[
        bool, typer.Option("--once", help="점검만 하고 끝냄 · check and end, do not keep the gateway running")
    ] = False
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="이미 떠 있는 게이트웨이 주소 · a gateway that runs already"),
    ] = None
    samples: Annotated[
        Path | None, typer.Option(metavar="DIR", help="clips/·blackout/이 든 폴더 · folder of clips")
    ] = None
    out: Annotated[Path, typer.Option(metavar="DIR", help="결과를 둘 폴더 · folder for the results")] = Path(
        "var/demo"
    )
    json: Annotated[bool, typer.Option("--json", help="표 대신 JSON 하나 · one JSON object, no table")] = (
        False
    )
    lang: Annotated[Language | None, typer.Option(metavar="ko|en", help="말할 언어 · language to speak")] = (
        None
    )


@takes(DemoOptions)
def demo(options: DemoOptions) -> None:
    """샘플 영상으로 게이트웨이를 6단계로 점검합니다. · Check a gateway in six steps on the sample clips.

    --url이 없으면 게이트웨이를 직접 띄웁니다. 한 항목이라도 통과하지 못하면 1로 끝납니다.
    · Without --url it starts a gateway itself. It ends with 1 when a row fails.
    """
    language = choose_language(options.lang, os.environ)
    try:
        code = asyncio.run(_demo(options, language))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stderr.write(f"\n{say(language, 'interrupted')}\n")
        code = _INTERRUPTED
    except DabomError as error:
        sys.stderr.write(tell(error, language, options.url or "") + "\n")
        code = 2 if isinstance(error, ConfigError | ClientError) else 1
    raise typer.Exit(code)


async def _demo(options: DemoOptions, language: Language) -> int:
    loop = asyncio.get_running_loop()
    if task := asyncio.current_task():
        # SIGTERM ends the demo as Ctrl-C does: no gateway is left behind.
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    samples = await asyncio.to_thread(find_samples, options.samples)
    log = options.out / "gateway.log"
    async with _gateway(options.url, log, language) as url:
        report = await _check(url, samples, options.out, language)
        _show(report, options.json, language)
        if options.url is None and not options.once:
            stop = asyncio.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
            _show_urls(url, log, language)  # from here on a signal is the usual end, not an interruption
            await stop.wait()
    return 0 if report.passed else 1


@asynccontextmanager
async def _gateway(given: str | None, log: Path, language: Language) -> AsyncIterator[str]:
    if given is not None:
        yield given
        return
    sys.stderr.write(say(language, "starting") + "\n")
    async with started_gateway(log) as url:
        yield url


async def _check(url: str, samples: Samples, out: Path, language: Language) -> Report:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    async with Client(url, api_key=os.environ.get("DABOM_API_KEY") or None) as client:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(say(language, "progress"), total=None)
            check = Check(client, samples, out, language, lambda _step: progress.advance(task))
            progress.update(task, total=check.calls_total)
            return await check.run()


def _show(report: Report, as_json: bool, language: Language) -> None:
    if as_json:
        told = {"passed": report.passed, **msgspec.to_builtins(report)}
        sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
        return
    console = Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
    table = Table(title=f"{say(language, 'title')} · {report.url}")
    for column in ("item", "route", "checks", "result"):
        table.add_column(say(language, column), overflow="fold")
    table.add_column(say(language, "verdict"), no_wrap=True)
    for row in report.rows:
        verdict = "[green]✅ PASS[/]" if row.passed else "[red]❌ FAIL[/]"
        # Text from a model is not markup.
        table.add_row(*(_plain(cell) for cell in (row.item, row.route, row.checks, row.result)), verdict)
    console.print(table)
    console.print(say(language, "all_passed" if report.passed else "some_failed"))


def _plain(cell: str) -> str:
    return "".join(char for char in cell if char.isprintable()).replace("[", r"\[")


def _show_urls(url: str, log: Path, language: Language) -> None:
    body = '{"messages":[{"role":"user","content":"안녕"}]}'
    lines = (
        say(language, "running"),
        f"  {say(language, 'docs')}: {url}/docs",
        f"  {say(language, 'try')}: curl -sS {url}/chat -H 'Content-Type: application/json' -d '{body}'",
        f"  {say(language, 'log')}: {log}",
    )
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
