"""The audit chain in a database: appended to in batches, read in pages, verified as a stream."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dabom.store.database import open_database
from dabom.store.record import GENESIS_SEQ, Head, Row, chained
from dabom.store.tables import AUDIT
from dabom.store.verify import Fault, Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy.engine import Connection

    from dabom.store.database import Database

_PAGE = 1000
_PORTION, _BREATH_S = 16, 0.0001
MAX_FAULTS = 1000
_INSERT = "INSERT INTO dabom_audit (seq, previous, hash, record) VALUES ({0}, {0}, {0}, {0})"


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of a check. `faults` has the first `MAX_FAULTS`, `fault_count` counts all."""

    records: int
    lost: int
    head: Head | None
    faults: tuple[Fault, ...]
    fault_count: int


class AuditChain:
    """One chain of records; several writers, also of other processes, append to it in turn."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._unsure: tuple[Sequence[Mapping[str, Any]], Head] | None = None
        self._last: Head | None = None

    @property
    def name(self) -> str:
        """How messages call the database."""
        return self._database.name

    def close(self) -> None:
        """Give the connections back."""
        self._database.close()

    def begin(self) -> None:
        """Write the first record, unless the chain has one."""
        with self._database.write() as connection:
            if _head(connection) is None:
                _insert(connection, [chained(_genesis(), None)])

    def append(self, records: Sequence[Mapping[str, Any]]) -> Head:
        """Write records in one transaction; the new head. Raises `StoreError`, and then none is written.

        A server may have committed although its answer was lost: whoever tries again gives the same list, and
        what is there already is not written twice. When the record that this writer wrote last is gone, its
        end was cut off; nobody could see that later, so a record tells it.
        """
        with self._database.write() as connection:
            if self._unsure is not None and self._unsure[0] is records:
                written = self._unsure[1]
                if _hash_of(connection, written.seq) == written.hash:
                    self._last = written
                    return written
            head = append_records(connection, [*self._missing(connection), *records])
            self._unsure = (records, head)
        self._unsure, self._last = None, head
        return head

    def _missing(self, connection: Connection) -> list[Mapping[str, Any]]:
        last = self._last
        if last is None or _hash_of(connection, last.seq) == last.hash:
            return []
        return [{"kind": "broken", "time": _now(), "last": last.seq, "hash": last.hash.hex()}]

    def head(self) -> Head | None:
        """The last record; None when there is not even the first."""
        with self._database.read() as connection:
            return _head(connection)

    def hash_of(self, seq: int) -> bytes | None:
        """The hash that is stored of one record."""
        with self._database.read() as connection:
            return _hash_of(connection, seq)

    def rows(self, start: int | None = None, last: int | None = None) -> Iterator[Row]:
        """Rows by number, in pages, each in a transaction of its own: a long read keeps no writer waiting."""
        while True:
            query = sa.select(AUDIT).order_by(AUDIT.c.seq).limit(_PAGE)
            if start is not None:
                query = query.where(AUDIT.c.seq >= start)
            if last is not None:
                query = query.where(AUDIT.c.seq <= last)
            with self._database.read() as connection:
                page = connection.execute(query).all()
            for seq, previous, found, record in page:
                yield Row(seq, _octets(previous), _octets(found), _octets(record))
            if len(page) < _PAGE:
                return
            start = page[-1][0] + 1


def append_records(connection: Connection, records: Sequence[Mapping[str, Any]]) -> Head:
    """Write records in the caller's transaction, which no other writer's overlaps; the new head."""
    head = _head(connection)
    if head is None:
        first = chained(_genesis(), None)
        _insert(connection, [first])
        head = Head(first.seq, first.hash)
    for start in range(0, len(records), _PORTION):
        rows = list[Row]()
        for fields in records[start : start + _PORTION]:
            row = chained(fields, head)
            rows.append(row)
            head = Head(row.seq, row.hash)
        _insert(connection, rows)
        # a thread with an event loop shall not wait for all; with 0 it would seldom get its turn
        time.sleep(_BREATH_S)
    return head


def open_audit(text: str, *, read_only: bool = False) -> AuditChain:
    """The audit chain of a database; see `open_database`."""
    chain = AuditChain(open_database(text, read_only=read_only))
    if not read_only:
        chain.begin()
    return chain


def verify(
    chain: AuditChain,
    start: int = GENESIS_SEQ,
    anchors: Mapping[int, bytes] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Verification:
    """Check a chain from `start` on, up to the record that is the last one now. `progress` gets counts.

    The first record must follow the one before it, where that one is still there or among the anchors.
    """
    noted = dict(anchors or {})
    head = chain.head()
    link = noted.pop(start - 1, None) if start > GENESIS_SEQ else None
    if link is None and start > GENESIS_SEQ:
        link = chain.hash_of(start - 1)
    verifier = Verifier(start, link, noted)
    faults, count = list[Fault](), 0
    # from the genesis on: with what someone may have put before it
    for row in chain.rows(start if start > GENESIS_SEQ else None, None if head is None else head.seq):
        for fault in verifier.feed(row):
            count += 1
            if len(faults) < MAX_FAULTS:
                faults.append(fault)
        if not verifier.records % _PAGE:
            progress(verifier.records)
    rest = list(verifier.finish())
    progress(verifier.records)
    return Verification(verifier.records, verifier.lost, verifier.head, (*faults, *rest), count + len(rest))


def _genesis() -> dict[str, str]:
    """What the first record says: a name that no other chain has, so that chains cannot be mixed up."""
    return {"kind": "genesis", "chain": uuid.uuid4().hex, "time": _now()}


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _head(connection: Connection) -> Head | None:
    query = sa.select(AUDIT.c.seq, AUDIT.c.hash).order_by(AUDIT.c.seq.desc()).limit(1)
    found = connection.execute(query).first()
    return None if found is None else Head(found[0], _octets(found[1]))


def _hash_of(connection: Connection, seq: int) -> bytes | None:
    found = connection.execute(sa.select(AUDIT.c.hash).where(AUDIT.c.seq == seq)).first()
    return None if found is None else _octets(found[0])


def _insert(connection: Connection, rows: Sequence[Row]) -> None:
    # SQLAlchemy's own insert would cost more than all the rest of a record
    mark = "%s" if connection.dialect.name == "postgresql" else "?"
    connection.exec_driver_sql(_INSERT.format(mark), [tuple(row) for row in rows])


def _octets(value: object) -> bytes:
    """A value of a column; SQLite lets somebody put there what is no bytes, and then nothing fits it."""
    return value if isinstance(value, bytes) else str(value).encode()
