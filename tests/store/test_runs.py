from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dabom.errors import StoreError
from dabom.store import Attempt, Run, RunItem, Runs, open_audit, open_runs, verify

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN = Run("r1", "clips", 1.5, "/clips", "interleaved", "omni", "vLLM", "p" * 64, "s" * 64, "0", {"fps": 2.0})
ITEMS = [RunItem(n, f"뉴스/{n}", f"뉴스/{n}.mp4", "뉴스", "a" * 64, facts={"end_s": 6}) for n in range(3)]
SECRET = "결과에만 있는 문장"


@pytest.fixture
def runs(database: str) -> Iterator[Runs]:
    found = open_runs(database)
    yield found
    found.close()


def attempt(position: int, number: int = 1, code: str = "", text: str = "{}") -> Attempt:
    return Attempt(position, number, 2.0, 31.5, 200, code, ("note",), text, text, {"audio": 79}, {"seed": 0})


def test_a_run_comes_back_as_it_was_written(runs: Runs) -> None:
    runs.create(RUN, ITEMS)
    assert runs.find("r1") == RUN
    assert runs.items("r1") == ITEMS
    assert list(runs.attempts("r1")) == []
    assert runs.counts("r1") == {"open": 3}
    with pytest.raises(StoreError, match="holds no run r2"):
        runs.find("r2")


def test_an_item_gets_one_result_and_keeps_it(runs: Runs) -> None:
    runs.create(RUN, ITEMS)
    assert runs.record("r1", attempt(1, 1, "empty"), "open")
    assert runs.items("r1")[1].attempt is None
    assert runs.record("r1", attempt(1, 2), "done")
    assert not runs.record("r1", attempt(1, 3, "empty"), "failed")
    found = runs.items("r1")[1]
    assert (found.state, found.code, found.attempt) == ("done", "", 2)
    assert [(a.number, a.code) for a in runs.attempts("r1")] == [(1, "empty"), (2, "")]
    assert runs.tried("r1") == {1: 2}
    assert runs.counts("r1") == {"open": 2, "done": 1}


def test_any_text_of_a_model_is_kept(runs: Runs) -> None:
    runs.create(RUN, ITEMS)
    text = "a\0b\U0001f600"
    runs.record("r1", attempt(0, text=text), "done")
    (found,) = runs.attempts("r1")
    assert (found.raw, found.text, found.usage, found.asked) == (text, text, {"audio": 79}, {"seed": 0})


def test_attempts_are_read_in_pages(runs: Runs) -> None:
    runs.create(RUN, [RunItem(n, str(n), "", "", "") for n in range(450)])
    for position in range(450):
        runs.record("r1", attempt(position), "done")
    assert [found.position for found in runs.attempts("r1")] == list(range(450))


def test_a_run_that_is_not_whole_is_not_there(runs: Runs) -> None:
    with pytest.raises(StoreError):
        runs.create(RUN, [ITEMS[0], ITEMS[0]])
    assert runs.all() == []


def test_states_have_an_end(runs: Runs) -> None:
    runs.create(RUN, [])
    runs.set_state("r1", "finished")
    found = runs.find("r1")
    assert found.state == "finished"
    assert abs((found.ended_at or 0) - time.time()) < 60
    runs.set_state("r1", "running")
    assert runs.find("r1").ended_at is None


def test_what_is_erased_is_gone_and_told_in_the_chain(runs: Runs, database: str) -> None:
    runs.create(RUN, ITEMS)
    runs.create(Run("r2", *(getattr(RUN, name) for name in RUN.__slots__[1:])), ITEMS)
    runs.record("r1", attempt(0, text=SECRET), "done")
    head = runs.erase("r1", {"kind": "purge", "run": "r1"})
    assert [run.id for run in runs.all()] == ["r2"]
    assert (runs.items("r1"), list(runs.attempts("r1")), len(runs.items("r2"))) == ([], [], 3)
    chain = open_audit(database, read_only=True)
    found = verify(chain)
    assert (found.fault_count, found.head) == (0, head)
    assert b'"kind":"purge"' in list(chain.rows())[-1].record
    chain.close()
    with pytest.raises(StoreError):
        runs.erase("r1", {"kind": "purge"})


def test_no_byte_of_what_is_erased_stays_in_the_files(sqlite: str) -> None:
    runs = open_runs(sqlite)
    runs.create(RUN, ITEMS)
    runs.record("r1", attempt(0, text=SECRET * 500), "done")
    runs.erase("r1", {"kind": "purge"})
    runs.close()
    files = list(Path(sqlite).parent.glob("audit.db*"))
    assert files
    assert not [file for file in files if SECRET.encode() in file.read_bytes()]


HOLDER = """
import sys, time
from dabom.store import open_runs
with open_runs(sys.argv[1]).held("r1"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_run_has_one_worker_and_a_killed_one_lets_go(runs: Runs, database: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", HOLDER, database], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    with pytest.raises(StoreError, match="another process works on r1"), runs.held("r1"):
        pass
    with runs.held("r2"):
        runs.create(RUN, ITEMS)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    for _ in range(100):  # a server notices after a moment
        try:
            with runs.held("r1"):
                assert runs.record("r1", attempt(0), "done")
                break
        except StoreError:
            time.sleep(0.05)
    else:
        pytest.fail("nobody works on r1, and it is held")


def test_a_database_of_the_audit_alone_is_brought_up_to_date(sqlite: str) -> None:

    open_audit(sqlite).close()
    connection = sqlite3.connect(sqlite)
    for table in ("dabom_attempts", "dabom_items", "dabom_runs"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("UPDATE dabom_schema SET version_num = '0001'")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="older Dabom"):
        open_runs(sqlite, read_only=True)
    runs = open_runs(sqlite)
    runs.create(RUN, ITEMS)
    assert len(runs.items("r1")) == 3
    runs.close()
