"""The results of a run as a table: JSONL, CSV, Parquet or XLSX. One run, so one protocol."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from dabom.client import AnalysisResult
from dabom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from dabom.clips.results import Result
    from dabom.store import Run

Format: TypeAlias = Literal["jsonl", "csv", "parquet", "xlsx"]

_WHOLE = {
    *("position", "attempts", "status", "prompt_tokens", "completion_tokens", "video_tokens", "audio_tokens"),
    *("predicted_video", "predicted_audio", "seed", "max_tokens", "request_bytes"),
}
_NUMBERS = ("start_s", "end_s", "elapsed_ms")
_TRUE = ("claims", "sound_asked")
_RISKY = ("=", "+", "-", "@", "\t", "\r")
_MOST_CHARS = 32_767
"""What a cell of a worksheet holds."""
_WIDTHS = {"scene": 60, "speech": 40, "on_screen_text": 40, "sound": 30, "clip": 28, "answer": 60}


def rows_of(run: Run, results: Iterable[Result]) -> list[dict[str, Any]]:
    """One flat row for each item; what is not known is None."""
    return [_row(run, result) for result in results]


def write_rows(rows: Sequence[dict[str, Any]], kind: Format, file: BinaryIO) -> None:
    """Write a table. Raises ConfigError when a format needs a package that is not there."""
    match kind:
        case "jsonl":
            file.writelines(msgspec.json.encode(row) + b"\n" for row in rows)
        case "csv":
            _write_csv(rows, file)
        case "xlsx":
            _write_xlsx(rows, file)
        case "parquet":
            _write_parquet(rows, file)


def write_file(rows: Sequence[dict[str, Any]], kind: Format, path: Path) -> None:
    """The table as a file, which is there whole or not at all."""
    draft = path.with_name(f".{path.name}.part")
    try:
        with draft.open("wb") as file:
            write_rows(rows, kind, file)
        draft.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        draft.unlink(missing_ok=True)


def _row(run: Run, result: Result) -> dict[str, Any]:
    item, attempt = result.item, result.attempt
    usage = attempt.usage if attempt is not None else {}
    asked = attempt.asked if attempt is not None else {}
    tokens, predicted = usage.get("tokens") or {}, asked.get("predicted") or {}
    value = result.value if isinstance(result.value, dict) else {}
    return {
        "run": run.id,
        "protocol": run.protocol,
        "model": run.model,
        "position": item.position,
        "category": item.category,
        "clip": item.name,
        "control": item.control or None,
        "origin": item.origin or None,
        "start_s": item.facts.get("start_s"),
        "end_s": item.facts.get("end_s"),
        "state": item.state,
        "code": item.code or None,
        "codes": list(result.codes),
        "claims": result.claims,
        **{name: _text(value.get(name)) for name in AnalysisResult.__struct_fields__},
        "answer": attempt.text if attempt is not None else None,
        "raw": attempt.raw if attempt is not None else None,
        "error": usage.get("error"),
        "attempts": result.attempts,
        "status": attempt.status if attempt is not None else None,
        "finish_reason": usage.get("finish_reason"),
        "started_at": _time(attempt.started_at) if attempt is not None else None,
        "elapsed_ms": attempt.elapsed_ms if attempt is not None else None,
        "prompt_tokens": usage.get("prompt_tokens"),
        "completion_tokens": usage.get("completion_tokens"),
        **{f"{kind}_tokens": tokens.get(kind) for kind in ("video", "audio")},
        **{f"predicted_{kind}": predicted.get(kind) for kind in ("video", "audio")},
        "sound_asked": asked.get("sound"),
        "seed": asked.get("seed"),
        "max_tokens": asked.get("max_tokens"),
        "request_bytes": asked.get("bytes"),
        "answered_model": usage.get("model"),
        "server": run.server,
        "clip_sha256": item.sha256,
        "sent_sha256": asked.get("sha256") or None,
        "prompt_sha256": run.prompt_sha256,
        "schema_sha256": run.schema_sha256,
        "dabom": run.version,
    }


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "codes": " ".join(row["codes"])}


def _write_csv(rows: Sequence[dict[str, Any]], file: BinaryIO) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    text.write("\ufeff")  # else a spreadsheet takes Korean for something else
    writer = csv.writer(text)
    writer.writerow(rows[0] if rows else ())
    for row in rows:
        writer.writerow([_safe(value) for value in _flat(row).values()])
    text.detach()


def _safe(value: Any) -> Any:
    """A text that a spreadsheet would run as a formula gets an apostrophe before it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_RISKY) else value


def _write_xlsx(rows: Sequence[dict[str, Any]], file: BinaryIO) -> None:
    import xlsxwriter  # only who asks for a worksheet waits for it

    options = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with xlsxwriter.Workbook(file, {**options, "in_memory": True}) as book:
        sheet = book.add_worksheet("results")
        bold, wrap = book.add_format({"bold": True}), book.add_format({"text_wrap": True, "valign": "top"})
        names = list(rows[0]) if rows else []
        for column, name in enumerate(names):
            sheet.write_string(0, column, name, bold)
            sheet.set_column(column, column, _WIDTHS.get(name, 14))
        for number, row in enumerate(rows, 1):
            for column, value in enumerate(_flat(row).values()):
                if isinstance(value, str):
                    sheet.write_string(number, column, value[:_MOST_CHARS], wrap)
                elif value is not None:
                    sheet.write(number, column, value)
        sheet.freeze_panes(1, 0)
        if rows:
            sheet.autofilter(0, 0, len(rows), len(names) - 1)


def _write_parquet(rows: Sequence[dict[str, Any]], file: BinaryIO) -> None:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise ConfigError(
            "Parquet needs pyarrow: pip install 'dabom[parquet]'; or take csv or jsonl"
        ) from None
    # the types are told, not guessed: a column of nothing but None has the same one in every file
    schema = pa.schema([(name, _arrow_type(pa, name)) for name in (rows[0] if rows else ())])
    parquet.write_table(pa.Table.from_pylist(list(rows), schema=schema), file, compression="zstd")


def _arrow_type(pa: Any, name: str) -> Any:
    if name == "codes":
        return pa.list_(pa.string())
    if name in _WHOLE:
        return pa.int64()
    if name in _NUMBERS:
        return pa.float64()
    return pa.bool_() if name in _TRUE else pa.string()
