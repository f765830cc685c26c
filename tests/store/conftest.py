"""Databases for the tests: a file of SQLite, and a PostgreSQL cluster that is started for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_STARTS_S = 30
_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")


def _find_binaries() -> Path | None:
    """The newest PostgreSQL of this machine; Debian keeps its programs out of PATH."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return found[-1].parent if found else None


def _run(command: Sequence[str | Path], folder: Path) -> None:
    # the server refuses to be root
    as_user = _NOBODY if os.getuid() == 0 else ()
    with (folder / "errors").open("wb") as errors:  # no pipe: the server would keep it
        done = subprocess.run(
            [*as_user, *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            timeout=_STARTS_S,
            check=False,
        )
    assert done.returncode == 0, (folder / "errors").read_text()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Path]:
    """The folder of a running PostgreSQL that listens on a socket in it and nowhere else."""
    binaries = _find_binaries()
    if binaries is None:
        pytest.skip("there is no PostgreSQL on this machine; make setup installs it where it may")
    folder = Path(tempfile.mkdtemp(prefix="dabom-pg-"))  # the path of a socket must be short
    try:
        if os.getuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
        data = folder / "data"
        _run([binaries / "initdb", "-D", data, "-U", "dabom", "-A", "trust", "-E", "UTF8", "-N"], folder)
        options = f"-F -k {folder} -c listen_addresses="
        _run([binaries / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start"], folder)
        try:
            yield folder
        finally:
            _run([binaries / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop"], folder)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def postgresql(cluster: Path) -> str:
    """The URL of a new, empty database."""
    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(host=str(cluster), user="dabom", dbname="postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    return f"postgresql://dabom@/{name}?host={cluster}"


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """The path of a database that is not there yet."""
    return str(tmp_path / "audit.db")


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """An address of each kind."""
    address: str = request.getfixturevalue(request.param)
    return address


@pytest.fixture
def tamper(database: str) -> Callable[..., None]:
    """`tamper((sql, values), ...)`: what somebody does who may write to the database."""
    return lambda *statements: _tamper(database, *statements)


def _tamper(database: str, *statements: tuple[str, tuple[object, ...]]) -> None:
    if database.startswith("postgresql"):
        with psycopg.connect(database) as server:
            server.execute("ALTER TABLE dabom_audit DISABLE TRIGGER ALL")
            for sql, values in statements:
                server.execute(sql.replace("?", "%s").encode(), values)
        return
    import sqlite3

    connection = sqlite3.connect(database)
    for what in ("UPDATE", "DELETE"):
        connection.execute(f"DROP TRIGGER IF EXISTS dabom_audit_no_{what}")
    for sql, values in statements:
        connection.execute(sql, values)
    connection.commit()
    connection.close()
