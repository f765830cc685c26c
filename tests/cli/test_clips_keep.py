from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.clips.stored import put_clips, stored_run

from dabom.store import open_runs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A run in `runs.db`, kept where the commands are started."""
    put_clips(tmp_path / "clips/news", "0001.mp4", "0002.mp4", "0003.mp4")
    runs = open_runs(str(tmp_path / "runs.db"))
    found = stored_run(runs, tmp_path / "clips")
    runs.set_state(found.id, "interrupted")
    runs.close()
    return found.id


def clips(folder: Path, *args: str, database: str = "runs.db") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "dabom.cli", "clips", *args, "--database", database],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", "NO_COLOR": "1", "PYTHONUTF8": "1"},
    )
    return done.returncode, done.stdout, done.stderr


def test_runs_are_listed(tmp_path: Path, run: str) -> None:
    code, out, err = clips(tmp_path, "runs", "--lang", "ko")
    assert (code, err) == (0, "")
    (row,) = [line for line in out.splitlines() if run in line]
    assert row.split()[-6:] == ["중단됨", "qwen", "interleaved", "1", "1", "1"]
    _, out, _ = clips(tmp_path, "runs", "--json")
    (told,) = json.loads(out)
    assert (told["id"], told["state"], told["done"], told["open"]) == (run, "interrupted", 1, 1)


def test_results_are_given_out(tmp_path: Path, run: str) -> None:
    code, out, err = clips(tmp_path, "export", run)
    assert (code, err) == (0, "")
    assert [json.loads(line)["clip"] for line in out.splitlines()] == ["news/0001", "news/0002", "news/0003"]
    for kind, head in (("csv", b"\xef\xbb\xbfrun,"), ("parquet", b"PAR1"), ("xlsx", b"PK\x03\x04")):
        code, out, err = clips(tmp_path, "export", run, "--format", kind, "--out", f"out.{kind}")
        assert (code, out, err) == (0, "", "")
        assert (tmp_path / f"out.{kind}").read_bytes().startswith(head)


def test_a_report_is_printed_or_written_beside_the_clips(tmp_path: Path, run: str) -> None:
    code, out, err = clips(tmp_path, "report", run, "--lang", "en")
    assert (code, err) == (0, "")
    assert "1 done, 1 failed, 1 open · 3 requests" in out
    code, out, err = clips(tmp_path, "report", run, "--html", "--lang", "ko")
    path = tmp_path / "clips" / f"report-{run}.html"
    assert (code, out, err) == (0, "", f"{path}\n")
    html = path.read_text(encoding="utf-8")
    assert '<html lang="ko">' in html
    assert html.endswith("</html>\n")
    code, _, err = clips(tmp_path, "report", run, "--out", "no/report.html", "--lang", "en")
    assert code == 1
    assert "cannot be written" in err


def test_a_run_that_is_not_there_is_told(tmp_path: Path, run: str) -> None:
    code, out, err = clips(tmp_path, "export", "x", "--lang", "en")
    assert (code, out) == (1, "")
    assert "holds no run x" in err
    code, _, err = clips(tmp_path, "export", run, "--lang", "en", database="nowhere.db")
    assert code == 1
    assert "there is no such file" in err


def test_a_purge_says_what_it_would_do_and_does_it(tmp_path: Path, run: str) -> None:
    code, out, _ = clips(tmp_path, "purge", "--older-than", "1h", "--lang", "en")
    assert (code, out) == (0, "no run is that old\n")
    code, out, _ = clips(tmp_path, "purge", "--older-than", "0d", "--dry-run", "--lang", "ko")
    assert out == f"실행 {run}: 결과 3개와 클립 3개(3,840 바이트)를 지우게 됩니다.\n"
    assert (tmp_path / "clips/news/0001.mp4").exists()
    code, out, _ = clips(tmp_path, "purge", "--older-than", "0d", "--json")
    (told,) = json.loads(out)
    assert (code, told["run"], len(told["media"]), told["dry_run"]) == (0, run, 3, False)
    assert not (tmp_path / "clips").exists()
    assert json.loads(clips(tmp_path, "runs", "--json")[1]) == []
    audit = [sys.executable, "-m", "dabom.cli", "audit", "export", "--database", "runs.db"]
    done = subprocess.run(audit, cwd=tmp_path, capture_output=True, text=True, check=True)
    records = [json.loads(line)["record"] for line in done.stdout.splitlines()]
    assert [(record["kind"], record.get("run")) for record in records] == [("genesis", None), ("purge", run)]


def test_an_age_must_be_given(tmp_path: Path, run: str) -> None:
    code, out, err = clips(tmp_path, "purge", "--lang", "en")
    assert (code, out) == (2, "")
    assert "30d" in err
