"""Opens a database, brings its tables up to date, and gives transactions. Knows the two dialects apart."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError

from dabom.errors import StoreError
from dabom.store import address, migrate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.engine import URL, Connection, Engine

_LOCK = 0x64_61_62_6F_6D  # "dabom": every writer of one PostgreSQL database takes this lock
_BUSY_S = 10
_SERVER_ANSWERS_S = 10
_TRIES = 50
_PAUSE_S = 0.02


class Database:
    """One database. Every error of the driver leaves it as a `StoreError`."""

    def __init__(self, url: URL, *, read_only: bool) -> None:
        self.name = address.name(url)
        self._file = None if _is_server(url) else Path(str(url.database))
        self._identity = _identity(self._file)
        self._engine = _postgresql(url, read_only) if _is_server(url) else _sqlite(url, read_only)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that writes nothing."""
        with self._told(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that no other writer's overlaps; it is there as a whole or not at all."""
        if _identity(self._file) != self._identity:
            # SQLite would write on into a file that nobody finds any more
            raise StoreError(f"{self.name}: the file was removed or replaced while it was in use")
        with self._told(), self._engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            yield connection

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Hold a name as the only process; whoever dies lets go. Raises `StoreError` when another has it."""
        held = StoreError(f"{self.name}: another process works on {name}; wait for its end")
        if self._file is not None:
            with _locked(self._file.with_name(f"{self._file.name}.{name}.lock"), held):
                yield
            return
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        with self._told(), self._engine.connect() as plain:
            connection = plain.execution_options(isolation_level="AUTOCOMMIT")
            if not connection.scalar(sa.select(sa.func.pg_try_advisory_lock(number))):
                raise held
            try:
                yield
            finally:
                connection.execute(sa.select(sa.func.pg_advisory_unlock(number)))

    def settle(self) -> None:
        """Bring what SQLite still keeps in its log into the file, and empty the log."""
        if self._file is None:
            return
        with self._told(), self._engine.connect() as connection:
            connection.connection.driver_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[union-attr]

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            # the driver's own words: SQLAlchemy would quote the statement
            reason = str(getattr(error, "orig", None) or type(error).__name__).strip().partition("\n")[0]
            raise StoreError(f"{self.name}: {reason}") from None


def open_database(text: str, *, read_only: bool = False) -> Database:
    """Open a database by path or URL.

    A SQLite file that is not there is made, its folder is not. Tables are made and brought up to date, also
    when several processes open the database at once; with `read_only` nothing is made or changed.
    Raises `ConfigError` for an address that cannot be one, `StoreTooNew` and `StoreError`.
    """
    url = address.parse(text)
    if not _is_server(url):
        _prepare_file(Path(str(url.database)), read_only=read_only)
    database = Database(url, read_only=read_only)
    try:
        if read_only:
            with database.read() as connection:
                migrate.check(connection, database.name)
        else:
            with database.write() as connection:
                migrate.upgrade(connection, database.name)
    except BaseException:
        database.close()
        raise
    return database


@contextmanager
def _locked(file: Path, held: StoreError) -> Iterator[None]:
    """Hold a file's lock, which the system takes from a process that dies; the file is gone afterwards."""
    while True:
        number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise held from None
            found = os.fstat(number)
            if _identity(file) != (found.st_dev, found.st_ino):
                continue  # whoever held it has just removed it
            try:
                yield
            finally:
                file.unlink(missing_ok=True)
            return
        finally:
            os.close(number)


def _identity(file: Path | None) -> tuple[int, int] | None:
    """What tells a file from another one of the same name."""
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


def _is_server(url: URL) -> bool:
    return url.get_backend_name() == "postgresql"


def _prepare_file(file: Path, *, read_only: bool) -> None:
    """Make the file for its owner's eyes; SQLite would let the umask decide."""
    try:
        if not read_only:
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        elif not file.is_file():
            raise StoreError(f"{file}: there is no such file")
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}") from None


def _sqlite(url: URL, read_only: bool) -> Engine:
    target: URL | str = url
    if read_only:
        target = url.set(database=f"file:{_quoted(str(url.database))}", query={"mode": "ro", "uri": "true"})
    engine = sa.create_engine(
        target, pool_size=1, max_overflow=1, hide_parameters=True, connect_args={"timeout": _BUSY_S}
    )
    begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"  # a writer that reads first must not be overtaken

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.isolation_level = None  # else the driver begins transactions when it sees fit
        if not read_only:
            _use_log(connection)
            connection.execute("PRAGMA synchronous=FULL")

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _use_log(connection: sqlite3.Connection) -> None:
    """Switch to WAL. Of several that do so at once, SQLite lets the late ones fail without waiting."""
    for attempt in range(_TRIES):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or attempt == _TRIES - 1:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


def _quoted(path: str) -> str:
    """A path in a URI of SQLite."""
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _postgresql(url: URL, read_only: bool) -> Engine:
    options = f"-c statement_timeout={_SERVER_ANSWERS_S}s -c lock_timeout={_SERVER_ANSWERS_S}s"
    if read_only:
        options += " -c default_transaction_read_only=on"
    return sa.create_engine(
        url,
        pool_size=1,
        max_overflow=1,
        pool_pre_ping=True,  # a server that was restarted is no error
        hide_parameters=True,
        connect_args={
            "connect_timeout": _SERVER_ANSWERS_S,
            "tcp_user_timeout": _SERVER_ANSWERS_S * 1000,  # a cable that was pulled is noticed
            "application_name": "dabom",
            "options": options,
        },
    )
