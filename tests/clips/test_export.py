from __future__ import annotations

import csv
import io
import json
import sys
import zipfile
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import pytest
from pyarrow import parquet
from tests.clips.stored import SCENE, answer, put_clips, stored_run

from dabom.clips.export import Format, rows_of, write_file, write_rows
from dabom.clips.results import read_results
from dabom.errors import ConfigError
from dabom.store import open_runs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    put_clips(tmp_path / "clips/news", "0001.mp4", "0002.mp4", "0003.mp4")
    runs = open_runs(str(tmp_path / "runs.db"))
    run = stored_run(runs, tmp_path / "clips")
    found = rows_of(run, read_results(runs, run))
    runs.close()
    return found


def written(rows: list[dict[str, Any]], kind: Format) -> bytes:
    file = io.BytesIO()
    write_rows(rows, kind, file)
    return file.getvalue()


def test_a_row_tells_all_about_its_item(rows: list[dict[str, Any]]) -> None:
    done, failed, unasked = rows
    assert (done["clip"], done["category"], done["state"], done["scene"]) == (
        "news/0001",
        "news",
        "done",
        SCENE,
    )
    assert (done["answer"], done["raw"]) == (answer(), "assistant\n" + answer())
    assert (done["prompt_tokens"], done["audio_tokens"], done["predicted_audio"]) == (1400, 1401, 1401)
    assert (failed["state"], failed["code"], failed["codes"], failed["attempts"]) == (
        "failed",
        "empty",
        ["empty"],
        2,
    )
    assert (unasked["state"], unasked["answer"], unasked["scene"]) == ("open", None, None)
    assert {row["protocol"] for row in rows} == {"interleaved"}
    assert done.keys() == failed.keys() == unasked.keys()


def test_jsonl(rows: list[dict[str, Any]]) -> None:
    assert [json.loads(line) for line in written(rows, "jsonl").splitlines()] == rows


def test_csv_opens_in_a_spreadsheet_and_runs_nothing(rows: list[dict[str, Any]]) -> None:
    content = written(rows, "csv")
    assert content.startswith(b"\xef\xbb\xbf")
    found = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    assert [row["clip"] for row in found] == ["news/0001", "news/0002", "news/0003"]
    assert found[0]["scene"] == "'" + SCENE
    assert found[1]["codes"] == "empty"
    assert found[2]["answer"] == ""


def test_parquet_has_types(rows: list[dict[str, Any]]) -> None:
    table = parquet.read_table(io.BytesIO(written(rows, "parquet")))
    assert table.to_pylist() == rows
    types = {field.name: str(field.type) for field in table.schema}
    assert (types["prompt_tokens"], types["elapsed_ms"], types["scene"]) == ("int64", "double", "string")
    assert (types["codes"], types["claims"]) == ("list<element: string>", "bool")


def test_xlsx_holds_the_texts_as_texts(rows: list[dict[str, Any]]) -> None:
    with zipfile.ZipFile(io.BytesIO(written(rows, "xlsx"))) as book:
        sheet = book.read("xl/worksheets/sheet1.xml").decode()
        strings = book.read("xl/sharedStrings.xml").decode()
    assert sheet.count("<row ") == 4
    assert "<f>" not in sheet, "a text became a formula"
    assert f">{escape(SCENE)}<" in strings


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "xlsx"])
def test_nothing_is_a_table_too(kind: Format) -> None:
    content = written([], kind)
    if kind == "jsonl":
        assert content == b""
    elif kind == "csv":
        assert len(content.splitlines()) <= 1
    elif kind == "parquet":
        assert parquet.read_table(io.BytesIO(content)).num_rows == 0
    else:
        with zipfile.ZipFile(io.BytesIO(content)) as book:
            assert book.read("xl/worksheets/sheet1.xml").count(b"<row ") <= 1


def test_without_pyarrow_parquet_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"dabom\[parquet\]"):
        written([], "parquet")


def test_a_file_is_whole_or_not_there(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    path = tmp_path / "out.csv"
    write_file(rows, "csv", path)
    assert path.read_bytes() == written(rows, "csv")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_file(rows, "csv", tmp_path / "no" / "out.csv")
    with pytest.raises(TypeError):
        write_file([{**rows[0], "raw": object()}], "jsonl", tmp_path / "half.jsonl")
    assert not [path.name for path in tmp_path.glob("*half*")]
