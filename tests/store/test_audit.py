"""The chain in real databases: appended to by several, falsified, cut off by a kill, on a full disk."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from dabom.errors import StoreError
from dabom.store import AuditChain, open_audit, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy.engine import Connection

_APPEND = """
import sys
from dabom.store import open_audit
chain, number = open_audit(sys.argv[1]), 0
while True:
    chain.append([{"kind": "request", "request_id": f"{sys.argv[2]}-{number + i}"} for i in range(7)])
    number += 7
    print(number, flush=True)
"""


def _records(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "kind": "request",
            "request_id": f"r{number}",
            "model": "큐웬",
            "media": [{"kind": "image", "width": 7}],
        }
        for number in range(start, start + count)
    ]


@pytest.fixture
def chain(database: str) -> Iterator[AuditChain]:
    chain = open_audit(database)
    yield chain
    chain.close()


def test_records_come_back_as_they_were_written(chain: AuditChain) -> None:
    head = chain.append(_records(3))
    assert chain.append([]) == chain.head() == head
    assert head.seq == 3
    rows = list(chain.rows(1, 2))
    assert [row.seq for row in rows] == [1, 2]
    assert rows[0].record == (
        '{"kind":"request","media":[{"kind":"image","width":7}],"model":"큐웬","request_id":"r0","seq":1}'.encode()
    )
    found = verify(chain)
    assert (found.records, found.fault_count, found.head) == (4, 0, head)


def test_more_than_a_page_is_read_whole(chain: AuditChain) -> None:
    chain.append(_records(2500))
    seen = list[int]()
    found = verify(chain, progress=seen.append)
    assert (found.records, found.faults) == (2501, ())
    assert seen == [1000, 2000, 2501]
    assert [row.seq for row in chain.rows(998)][:4] == [998, 999, 1000, 1001]


def test_the_database_itself_refuses_changes(database: str, chain: AuditChain) -> None:
    chain.append(_records(3))
    statements = ["UPDATE dabom_audit SET record = hash", "DELETE FROM dabom_audit WHERE seq = 2"]
    if database.startswith("postgresql"):
        for statement in [*statements, "TRUNCATE dabom_audit"]:
            with pytest.raises(psycopg.Error, match="append-only"), psycopg.connect(database) as server:
                server.execute(statement.encode())
    else:
        for statement in statements:
            connection = sqlite3.connect(database)
            with pytest.raises(sqlite3.Error, match="append-only"):
                connection.execute(statement)
            connection.close()
    assert verify(chain).records == 4


@pytest.mark.parametrize(
    ("statements", "kinds"),
    [
        ([("UPDATE dabom_audit SET record = ? WHERE seq = ?", (b"{}", 5))], ["changed"]),
        ([("DELETE FROM dabom_audit WHERE seq = ?", (5,))], ["removed"]),
        (
            [
                ("UPDATE dabom_audit SET seq = ? WHERE seq = ?", (-5, 5)),
                ("UPDATE dabom_audit SET seq = ? WHERE seq = ?", (5, 6)),
                ("UPDATE dabom_audit SET seq = ? WHERE seq = ?", (6, -5)),
            ],
            ["reordered", "reordered", "replaced"],
        ),
        ([("UPDATE dabom_audit SET seq = ? WHERE seq = ?", (-1, 0))], ["inserted", "removed"]),
        ([("DELETE FROM dabom_audit WHERE seq >= ?", (0,))], ["truncated"]),
    ],
)
def test_what_is_falsified_in_a_database_is_found(
    chain: AuditChain,
    tamper: Callable[..., None],
    statements: list[tuple[str, tuple[object, ...]]],
    kinds: list[str],
) -> None:
    chain.append(_records(9))
    tamper(*statements)
    found = verify(chain)
    assert [fault.kind for fault in found.faults] == kinds
    assert found.fault_count == len(kinds)


@pytest.mark.parametrize(
    "statements",
    [
        [("DELETE FROM dabom_audit WHERE seq >= ?", (7,))],
        [("DELETE FROM dabom_audit WHERE seq >= ?", (0,))],
        [("UPDATE dabom_audit SET hash = ? WHERE seq = ?", (b"1" * 32, 9))],
    ],
)
def test_a_writer_finds_that_what_it_wrote_last_is_gone(
    chain: AuditChain, tamper: Callable[..., None], statements: list[tuple[str, tuple[object, ...]]]
) -> None:
    head = chain.append(_records(9))
    tamper(*statements)
    chain.append(_records(2, 9))
    chain.append(_records(2, 11))
    broken = [fault for fault in verify(chain).faults if fault.kind == "broken"]
    assert [(fault.last, head.hash.hex() in fault.message) for fault in broken] == [(9, True)]


def test_a_writer_minds_no_other_one(chain: AuditChain, database: str) -> None:
    other = open_audit(database)
    for number in range(4):
        (chain, other)[number % 2].append(_records(2, 2 * number))
    other.close()
    assert verify(chain).faults == ()


def test_what_is_no_bytes_is_a_fault_and_no_failure(sqlite: str) -> None:
    chain = open_audit(sqlite)
    chain.append(_records(3))
    connection = sqlite3.connect(sqlite)
    connection.execute("DROP TRIGGER dabom_audit_no_UPDATE")
    connection.execute("UPDATE dabom_audit SET record = 7, hash = 'x', previous = 1.5 WHERE seq = 2")
    connection.commit()
    connection.close()
    assert [fault.kind for fault in verify(chain).faults] == ["changed", "replaced"]
    chain.close()


def test_a_part_is_checked_against_what_stands_before_it(
    chain: AuditChain, tamper: Callable[..., None]
) -> None:
    chain.append(_records(9))
    rows = list(chain.rows())
    assert verify(chain, 6).records == 4
    tamper(("DELETE FROM dabom_audit WHERE seq < ?", (6,)))
    assert verify(chain, 6, {5: rows[5].hash}).faults == ()
    assert [fault.kind for fault in verify(chain, 6, {5: bytes(32)}).faults] == ["replaced"]


def test_of_very_many_faults_some_are_kept_and_all_are_counted(
    chain: AuditChain, tamper: Callable[..., None]
) -> None:
    chain.append(_records(1200))
    tamper(("UPDATE dabom_audit SET record = ? WHERE seq > 0", (b"{}",)))
    found = verify(chain)
    assert (found.fault_count, len(found.faults)) == (1200, 1000)


def test_a_batch_whose_commit_was_not_confirmed_is_not_written_twice(
    chain: AuditChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = chain._database.write

    @contextmanager
    def unconfirmed() -> Iterator[Connection]:
        with write() as connection:
            yield connection
        raise StoreError("the connection was lost")

    batch = _records(5)
    monkeypatch.setattr(chain._database, "write", unconfirmed)
    with pytest.raises(StoreError):
        chain.append(batch)
    monkeypatch.undo()
    assert chain.append(batch).seq == 5
    assert chain.append(_records(1, 5)).seq == 6
    assert verify(chain).records == 7


def test_several_writers_make_one_chain(database: str, chain: AuditChain) -> None:
    def write(name: str) -> None:
        own = open_audit(database)
        for number in range(20):
            own.append([{"kind": "request", "request_id": f"{name}-{number}-{i}"} for i in range(3)])
        own.close()

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = verify(chain)
    assert (found.records, found.faults) == (1 + 4 * 20 * 3, ())


def test_processes_that_are_killed_leave_a_chain_that_is_whole(database: str) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", _APPEND, database, name], stdout=subprocess.PIPE)
        for name in "ab"
    ]
    confirmed = 0
    for writer in writers:
        assert writer.stdout is not None
        confirmed += int([writer.stdout.readline() for _ in range(4)][-1])
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        writer.communicate(timeout=10)
    chain = open_audit(database, read_only=True)
    found = verify(chain)
    chain.close()
    assert found.faults == ()
    assert found.records >= 1 + confirmed
    assert (found.records - 1) % 7 == 0, "a batch is there as a whole or not at all"


def test_a_full_database_takes_nothing_and_then_goes_on(sqlite: str) -> None:
    chain = open_audit(sqlite)
    with chain._database.read() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 3}")
    with pytest.raises(StoreError, match="database or disk is full"):
        chain.append(_records(2000))
    assert verify(chain).records == 1
    chain.append(_records(3))
    with chain._database.read() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    chain.append(_records(2000))
    assert (verify(chain).records, verify(chain).faults) == (2004, ())
    chain.close()


def test_a_file_that_is_taken_away_is_no_place_to_write_to(sqlite: str) -> None:
    chain = open_audit(sqlite)
    Path(sqlite).rename(f"{sqlite}.old")
    with pytest.raises(StoreError, match="removed or replaced"):
        chain.append(_records(1))
    Path(sqlite).touch()
    with pytest.raises(StoreError, match="removed or replaced"):
        chain.append(_records(1))
    Path(f"{sqlite}.old").rename(sqlite)
    assert chain.append(_records(1)).seq == 1
    chain.close()


def test_a_server_that_was_restarted_is_used_again(postgresql: str) -> None:
    chain = open_audit(postgresql)
    chain.append(_records(1))
    with psycopg.connect(postgresql, autocommit=True) as server:
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert chain.append(_records(1, 1)).seq == 2
    chain.close()


def test_a_server_that_is_away_for_a_while(postgresql: str) -> None:
    chain, batch = open_audit(postgresql), _records(3)
    name = psycopg.conninfo.conninfo_to_dict(postgresql)["dbname"]
    with psycopg.connect(postgresql, dbname="postgres", autocommit=True) as server:
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        with pytest.raises(StoreError, match="not currently accepting connections"):
            chain.append(batch)
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'.encode())
    assert chain.append(batch).seq == 3
    assert verify(chain).records == 4
    chain.close()


def test_reading_and_adding_is_all_that_a_gateway_must_be_allowed(postgresql: str) -> None:
    open_audit(postgresql).close()
    with psycopg.connect(postgresql) as server:
        server.execute("DROP ROLE IF EXISTS gateway")
        server.execute("CREATE ROLE gateway LOGIN")
        server.execute("GRANT SELECT, INSERT ON dabom_audit TO gateway")
        server.execute("GRANT SELECT ON dabom_schema TO gateway")
    chain = open_audit(postgresql.replace("dabom@", "gateway@"))
    assert chain.append(_records(2)).seq == 2
    chain.close()
    with psycopg.connect(postgresql) as server:
        server.execute("DROP OWNED BY gateway")
        server.execute("DROP ROLE gateway")


def test_a_check_does_not_keep_writers_waiting(database: str, chain: AuditChain) -> None:
    chain.append(_records(1500))
    reader = open_audit(database, read_only=True)
    rows = reader.rows()
    next(rows)
    began = time.monotonic()
    chain.append(_records(1, 1500))
    assert time.monotonic() - began < 5
    assert sum(1 for _ in rows) == 1501
    reader.close()
