from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from dabom.cli.audit import audit
from dabom.store import open_audit

if TYPE_CHECKING:
    from pathlib import Path


def _dabom(*args: str, **env: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(audit, args, env={"LC_ALL": "C.UTF-8", "COLUMNS": "200", **env})
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("VLLM_", "DABOM_", "MAX_BATCH_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def database(tmp_path: Path) -> str:
    file = str(tmp_path / "audit.db")
    chain = open_audit(file)
    chain.append([{"kind": "request", "request_id": f"r{number}"} for number in range(9)])
    chain.append([{"kind": "gap", "lost": 4, "refused": 0}])
    chain.close()
    return file


def _tamper(database: str, statement: str) -> None:
    connection = sqlite3.connect(database)
    for what in ("UPDATE", "DELETE"):
        connection.execute(f"DROP TRIGGER dabom_audit_no_{what}")
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_whole_chain(database: str) -> None:
    code, out, err = _dabom("verify", "--database", database)
    assert (code, err) == (0, "")
    assert out.startswith("OK: 11 records, 0 to 10; none was changed, removed or moved\n")
    assert "could not write: 4" in out
    code, out, _ = _dabom("verify", "--database", database, "--lang", "ko")
    assert code == 0
    assert out.startswith("정상: 기록 11개(0~10번)")


def test_a_broken_chain_is_told_by_record(database: str, tmp_path: Path) -> None:
    _tamper(database, "UPDATE dabom_audit SET record = replace(record, 'r3', 'r4') WHERE seq = 4")
    code, out, _ = _dabom("verify", "--database", database)
    assert code == 1
    assert out.startswith("BROKEN: 1 faults in 11 records\n  record 4 was changed")
    code, out, _ = _dabom("verify", "--database", database, "--lang", "ko")
    assert (code, out.splitlines()[1]) == (1, "  4번 기록이 바뀌었습니다.")
    code, out, _ = _dabom("verify", "--database", database, "--json")
    found: dict[str, Any] = json.loads(out)
    (fault,) = found["faults"]
    assert (code, found["ok"], found["fault_count"], found["lost"]) == (1, False, 1, 4)
    assert (fault["kind"], fault["seq"], fault["last"]) == ("changed", 4, 4)
    assert _dabom("verify", "--database", database, "--from", "5")[0] == 0


def test_a_head_that_was_noted_down_shows_a_cut_end(database: str, tmp_path: Path) -> None:
    code, head, _ = _dabom("head", "--database", database)
    assert (code, head[:3]) == (0, "10:")
    code, out, _ = _dabom("head", "--database", database, "--json")
    assert json.loads(out) == {"seq": 10, "hash": head.strip()[3:]}
    assert _dabom("verify", "--database", database, "--anchor", head)[0] == 0
    _tamper(database, "DELETE FROM dabom_audit WHERE seq > 8")
    assert _dabom("verify", "--database", database)[0] == 0
    code, out, _ = _dabom("verify", "--database", database, "--anchor", head)
    assert code == 1
    assert "record 10 was noted down, and the chain ends with 8" in out


def test_export_gives_what_is_needed_to_recompute_it(database: str) -> None:
    code, out, _ = _dabom("export", "--database", database, "--from", "3", "--to", "4")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["record"]["seq"] for line in lines] == [3, 4]
    assert lines[1]["previous"] == lines[0]["hash"]


def test_the_database_of_the_settings_is_taken(database: str, tmp_path: Path) -> None:
    (tmp_path / "dabom.yaml").write_text(f"audit:\n  database: {database}\n")
    assert _dabom("head", "--config", "dabom.yaml")[0] == 0
    setting = json.dumps({"database": database})
    assert _dabom("head", DABOM_AUDIT=setting)[0] == 0


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("head",), "where is the audit?"),
        (("verify", "--database", "mysql://u:geheim@h/d"), "the database is of the kind mysql"),
        (("verify", "--database", "{db}", "--anchor", "7"), "is not SEQ:HASH"),
        (
            ("verify", "--database", "{db}", "--from", "5", "--anchor", "3:" + "0" * 64),
            "lies before --from 5",
        ),
        (("verify", "--database", "{db}", "--from", "-1"), "--from"),
        ((), "Usage"),
    ],
)
def test_wrong_use(args: tuple[str, ...], told: str, database: str) -> None:
    code, out, err = _dabom(*(arg.replace("{db}", database) for arg in args))
    assert code == 2
    assert told in err + out
    assert "geheim" not in err


def test_a_database_that_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    code, out, err = _dabom("verify", "--database", "no.db")
    assert (code, out) == (1, "")
    assert "no.db: there is no such file" in err
    assert not (tmp_path / "no.db").exists()


def test_a_terminal_sees_a_bar_and_the_result_stays_clean(database: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dabom.cli", "audit", "verify", "--database", database, "--lang", "en"],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
            cwd=tmp_path,
            check=False,
        )
        seen = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "verifying the audit" in seen
    assert "11/11" in seen
    assert done.stdout.startswith(b"OK: 11 records")
