from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from dabom.errors import ConfigError, StoreError, StoreTooNew
from dabom.store import open_audit, open_database, verify
from dabom.store.address import name, parse

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("text", "dialect", "shown"),
    [
        ("var/audit.db", "sqlite", "var/audit.db"),
        ("sqlite:////var/audit.db", "sqlite", "/var/audit.db"),
        (
            "postgresql://dabom:geheim@db:5433/audit",
            "postgresql+psycopg",
            "PostgreSQL database audit at db:5433",
        ),
        ("postgres://db/audit?password=geheim", "postgresql+psycopg", "PostgreSQL database audit at db"),
    ],
)
def test_addresses(text: str, dialect: str, shown: str) -> None:
    url = parse(text)
    assert (url.drivername, name(url)) == (dialect, shown)


@pytest.mark.parametrize(
    "text", ["", " ", ":memory:", "sqlite://", "sqlite:///:memory:", "mysql://u:geheim@h/d", "a b://geheim@"]
)
def test_what_is_no_address_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert "geheim" not in caught.value.message
    assert "postgresql://USER@HOST/DATABASE" in caught.value.message


def test_a_file_is_for_its_owner_alone(sqlite: str) -> None:
    open_audit(sqlite).close()
    assert stat.S_IMODE(Path(sqlite).stat().st_mode) == 0o600


def test_a_path_may_hold_what_a_uri_would_read_otherwise(tmp_path: Path) -> None:
    file = str(tmp_path / "a?mode=memory#100%25.db")
    open_audit(file).close()
    chain = open_audit(file, read_only=True)
    assert verify(chain).records == 1
    chain.close()
    assert Path(file).is_file()


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file or directory"):
        open_database(str(tmp_path / "no" / "audit.db"))
    with pytest.raises(StoreError, match="there is no such file"):
        open_database(str(tmp_path / "audit.db"), read_only=True)


def test_a_file_of_another_kind_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("no database " * 100)
    for read_only in (False, True):
        with pytest.raises(StoreError, match="file is not a database"):
            open_database(str(file), read_only=read_only)
    assert file.read_text() == "no database " * 100


def test_reading_a_database_of_something_else_is_refused(database: str) -> None:
    if not database.startswith("postgresql"):
        sqlite3.connect(database).close()
        Path(database).touch()
    with pytest.raises(StoreError, match="nothing of Dabom is in it"):
        open_database(database, read_only=True)


def test_reading_changes_nothing(database: str) -> None:
    open_audit(database).close()
    chain = open_audit(database, read_only=True)
    with pytest.raises(StoreError):
        chain.append([{"kind": "request"}])
    assert verify(chain).records == 1
    chain.close()


def test_tables_of_a_newer_dabom_are_refused(database: str, tamper: Callable[..., None]) -> None:
    open_audit(database).close()
    tamper(("UPDATE dabom_schema SET version_num = ?", ("9999",)))
    for read_only in (False, True):
        with pytest.raises(StoreTooNew, match="9999"):
            open_database(database, read_only=read_only)


def test_other_tables_of_a_database_are_left_alone(postgresql: str) -> None:
    with psycopg.connect(postgresql) as server:
        server.execute("CREATE TABLE alembic_version (version_num text)")
        server.execute("INSERT INTO alembic_version VALUES ('theirs')")
    open_audit(postgresql).close()
    with psycopg.connect(postgresql) as server:
        assert server.execute("SELECT * FROM alembic_version").fetchall() == [("theirs",)]


def test_several_may_open_a_new_database_at_once(database: str) -> None:
    start, failures = threading.Barrier(6), list[Exception]()

    def open_it() -> None:
        start.wait()
        try:
            open_audit(database).close()
        except Exception as error:  # noqa: BLE001 - the test shows it
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    chain = open_audit(database, read_only=True)
    assert verify(chain).records == 1, "one beginning"
    chain.close()


def test_a_server_that_is_not_there_is_told_without_its_password() -> None:
    with pytest.raises(StoreError) as caught:
        open_database("postgresql://dabom:geheim@127.0.0.1:1/audit")
    assert "PostgreSQL database audit at 127.0.0.1:1" in caught.value.message
    assert "refused" in caught.value.message
    assert "geheim" not in caught.value.message


def test_a_gateway_without_an_audit_does_not_load_sqlalchemy() -> None:
    code = (
        "import sys\n"
        "from dabom.app import build\n"
        "from dabom.gateway import GatewaySettings, UpstreamSettings\n"
        "build(GatewaySettings(upstreams=(UpstreamSettings(url='http://127.0.0.1:1/v1'),)))\n"
        "print(sorted({'sqlalchemy', 'alembic', 'psycopg'} & {*sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
