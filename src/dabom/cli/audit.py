"""`dabom audit`: check the audit chain, note down where it ends, and give its records out."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003  # typer reads it
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dabom.cli.language import Language, choose_language, tell
from dabom.cli.options import takes
from dabom.errors import ConfigError, DabomError
from dabom.store import open_audit, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dabom.store import AuditChain, Fault, Verification

audit = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="감사 기록을 검증하고 내보냅니다. · Verify and export the audit records.",
)

_ANCHOR = re.compile(r"(\d{1,18}):([0-9a-fA-F]{64})")
_WORDS = {
    "no_database": (
        "감사 기록이 어디에 있는지 알 수 없습니다. --database나 설정 파일의 audit.database로 알려 주세요.",
        "where is the audit? give --database, or a --config with audit.database",
    ),
    "bad_anchor": (
        "--anchor {text}: SEQ:HASH 형식(dabom audit head의 출력)이어야 합니다.",
        "--anchor {text} is not SEQ:HASH as dabom audit head prints it",
    ),
    "early_anchor": (
        "--anchor {seq}는 --from {start}보다 앞이라 확인할 수 없습니다.",
        "--anchor {seq} lies before --from {start} and cannot be checked",
    ),
    "whole": (
        "정상: 기록 {records:,}개({first}~{last}번)가 바뀌거나 빠지지 않았고 순서도 맞습니다.",
        "OK: {records:,} records, {first} to {last}; none was changed, removed or moved",
    ),
    "broken": (
        "손상: 기록 {records:,}개에서 문제 {count:,}건",
        "BROKEN: {count:,} faults in {records:,} records",
    ),
    "more": ("  … 외 {count:,}건", "  ... and {count:,} more"),
    "lost": (
        "게이트웨이가 쓰지 못했다고 밝힌 기록: {lost:,}개",
        "records that the gateway says it could not write: {lost:,}",
    ),
    "head": ("끝: {head}", "head: {head}"),
    "checking": ("감사 기록 검증", "verifying the audit"),
}
_FAULTS = {
    "changed": "{seq}번 기록이 바뀌었습니다.",
    "removed": "{seq}번부터 {last}번까지의 기록이 지워졌습니다.",
    "reordered": "{seq}번과 {last}번 사이에서 기록이 옮겨졌거나 끼워졌거나 지워졌습니다.",
    "inserted": "{seq}번 기록은 사슬의 처음보다 앞에 끼워졌습니다.",
    "replaced": "{last}번 기록이 {seq}번에 이어지지 않습니다. 둘 중 하나가 바뀌치기되었습니다.",
    "truncated": "{seq}번부터 {last}번까지, 사슬의 끝이 잘렸습니다.",
    "broken": "{last}번 기록은 쓰였다가, {seq}번을 쓸 때에는 사라졌거나 바뀌어 있었습니다.",
    "anchor": "{seq}번 기록이 적어 둔 해시와 다릅니다. 사슬이 새로 쓰였습니다.",
}


@dataclass(frozen=True)
class _Place:
    """Where the audit is."""

    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="SQLite 파일이나 postgresql:// 주소 · SQLite file or postgresql:// URL"
        ),
    ] = None
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="audit.database가 있는 설정 파일 · file that names it")
    ] = None
    json: Annotated[bool, typer.Option("--json", help="JSON 하나로 출력 · one JSON object")] = False
    lang: Annotated[Language | None, typer.Option(metavar="ko|en", help="말할 언어 · language to speak")] = (
        None
    )


@dataclass(frozen=True)
class VerifyOptions(_Place):
    """What `dabom audit verify` checks."""

    start: Annotated[
        int, typer.Option("--from", metavar="SEQ", help="이 번호부터 검증 · first record to check", min=0)
    ] = 0
    anchor: Annotated[
        list[str],
        typer.Option(
            metavar="SEQ:HASH", help="적어 둔 끝(여러 번 가능) · a head noted down earlier; repeatable"
        ),
    ] = field(default_factory=list)


@dataclass(frozen=True)
class ExportOptions(_Place):
    """What `dabom audit export` gives out."""

    start: Annotated[int, typer.Option("--from", metavar="SEQ", help="첫 번호 · first record", min=0)] = 0
    last: Annotated[
        int | None, typer.Option("--to", metavar="SEQ", help="마지막 번호 · last record", min=0)
    ] = None


@audit.command("verify")
@takes(VerifyOptions)
def verify_audit(options: VerifyOptions) -> None:
    """바뀌거나 지워지거나 옮겨진 기록을 찾습니다. · Find changed, removed and moved records.

    모두 맞으면 0, 손상되었으면 1로 끝납니다. · Ends with 0 when all is whole, else with 1.
    """
    side = _side(options)
    with _opened(options) as chain:
        anchors = _anchors(options, side)
        with _progress(chain, options.start, side) as advance:
            found = verify(chain, options.start, anchors, advance)
    if options.json:
        _print(msgspec.json.encode(_as_json(found, options.start)).decode())
    else:
        _print("\n".join(_lines(found, options.start, side)))
    raise typer.Exit(1 if found.fault_count else 0)


@audit.command("head")
@takes(_Place)
def show_head(options: _Place) -> None:
    """마지막 기록의 번호와 해시를 출력합니다. · Print number and hash of the last record.

    다른 곳에 적어 두었다가 verify --anchor에 주면 끝이 잘린 것도 찾습니다. · Note it down elsewhere; given to
    verify --anchor it shows when the end was cut off.
    """
    with _opened(options) as chain:
        head = chain.head()
    if head is None:
        raise typer.Exit(1)
    _print(
        msgspec.json.encode({"seq": head.seq, "hash": head.hash.hex()}).decode()
        if options.json
        else str(head)
    )


@audit.command("export")
@takes(ExportOptions)
def export_audit(options: ExportOptions) -> None:
    """기록을 NDJSON으로 출력합니다. · Print the records as NDJSON."""
    encode = msgspec.json.Encoder().encode
    with _opened(options) as chain:
        for row in chain.rows(options.start, options.last):
            line = {"hash": row.hash.hex(), "previous": row.previous.hex(), "record": msgspec.Raw(row.record)}
            _print(encode(line).decode())


def _side(options: _Place) -> int:
    return 0 if choose_language(options.lang, os.environ) == "ko" else 1


@contextmanager
def _opened(options: _Place) -> Iterator[AuditChain]:
    """The chain to read; what goes wrong with it is told on stderr, and ends the command."""
    try:
        chain = open_audit(_find_database(options), read_only=True)
        try:
            yield chain
        finally:
            chain.close()
    except DabomError as error:
        sys.stderr.write(tell(error, choose_language(options.lang, os.environ)) + "\n")
        raise typer.Exit(2 if isinstance(error, ConfigError) else 1) from None


def _find_database(options: _Place) -> str:
    if options.database is not None:
        return options.database
    from dabom.app import load_settings  # costs more than the check of a short chain

    database = load_settings(options.config).audit.database
    if database is None:
        raise ConfigError(_WORDS["no_database"][_side(options)])
    return database.get_secret_value()


def _anchors(options: VerifyOptions, side: int) -> dict[int, bytes]:
    anchors = {}
    for text in options.anchor:
        parts = _ANCHOR.fullmatch(text.strip())
        if parts is None:
            raise ConfigError(_WORDS["bad_anchor"][side].format(text=text[:100]))
        seq = int(parts[1])
        if seq < options.start - 1:
            raise ConfigError(_WORDS["early_anchor"][side].format(seq=seq, start=options.start))
        anchors[seq] = bytes.fromhex(parts[2])
    return anchors


@contextmanager
def _progress(chain: AuditChain, start: int, side: int) -> Iterator[Callable[[int], None]]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    head = chain.head()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        total = 0 if head is None else max(0, head.seq - start + 1)
        task = bar.add_task(_WORDS["checking"][side], total=total)
        yield lambda count: bar.update(task, completed=count)


def _lines(found: Verification, start: int, side: int) -> Iterator[str]:
    if not found.fault_count:
        last = found.head.seq if found.head else start
        yield _WORDS["whole"][side].format(records=found.records, first=start, last=last)
    else:
        yield _WORDS["broken"][side].format(records=found.records, count=found.fault_count)
        yield from (f"  {_fault(fault, side)}" for fault in found.faults)
        if found.fault_count > len(found.faults):
            yield _WORDS["more"][side].format(count=found.fault_count - len(found.faults))
    if found.lost:
        yield _WORDS["lost"][side].format(lost=found.lost)
    if found.head:
        yield _WORDS["head"][side].format(head=found.head)


def _fault(fault: Fault, side: int) -> str:
    if side:
        return fault.message
    return _FAULTS[fault.kind].format(seq=fault.seq, last=fault.last)


def _as_json(found: Verification, start: int) -> dict[str, Any]:
    head = found.head
    return {
        "ok": not found.fault_count,
        "first": start,
        "records": found.records,
        "lost": found.lost,
        "head": None if head is None else {"seq": head.seq, "hash": head.hash.hex()},
        "fault_count": found.fault_count,
        "faults": [
            {"kind": one.kind, "seq": one.seq, "last": one.last, "message": one.message}
            for one in found.faults
        ],
    }


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
