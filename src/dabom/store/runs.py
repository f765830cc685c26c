"""Runs in a database: made whole, filled attempt by attempt, erased with a record in the audit chain."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
import sqlalchemy as sa

from dabom.errors import StoreError
from dabom.store.audit import append_records
from dabom.store.database import open_database
from dabom.store.tables import ATTEMPTS, ITEMS, RUNS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy.engine import RowMapping

    from dabom.store.database import Database
    from dabom.store.record import Head

RunState: TypeAlias = Literal["running", "interrupted", "finished"]
ItemState: TypeAlias = Literal["open", "done", "failed"]
_PAGE = 200


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a workflow. Times are seconds since 1970."""

    id: str
    kind: str
    created_at: float
    place: str
    protocol: str
    model: str
    server: str
    prompt_sha256: str
    schema_sha256: str
    version: str
    settings: Mapping[str, Any]
    state: RunState = "running"
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class RunItem:
    """What a run asks about. `attempt` is the number of the attempt whose answer counts."""

    position: int
    name: str
    file: str
    category: str
    sha256: str
    control: str = ""
    origin: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    state: ItemState = "open"
    code: str = ""
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request about an item. `raw` is the model's text as it came, `text` what is taken of it.

    `code` says why it failed, and is empty when it did not; `codes` are all that the checks found.
    """

    position: int
    number: int
    started_at: float
    elapsed_ms: float
    status: int
    code: str = ""
    codes: tuple[str, ...] = ()
    raw: str = field(default="", repr=False)
    text: str = field(default="", repr=False)
    usage: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)


class Runs:
    """The runs of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def name(self) -> str:
        """How messages call the database."""
        return self._database.name

    def close(self) -> None:
        """Give the connections back."""
        self._database.close()

    def create(self, run: Run, items: Sequence[RunItem]) -> None:
        """Write a run and all its items, as a whole or not at all."""
        row = {name: getattr(run, name) for name in RUNS.columns.keys()}  # noqa: SIM118 - no mapping
        rows = [_item_row(run.id, item) for item in items]
        with self._database.write() as connection:
            connection.execute(sa.insert(RUNS), {**row, "settings": msgspec.json.encode(run.settings)})
            if rows:
                connection.execute(sa.insert(ITEMS), rows)

    def find(self, run: str) -> Run:
        """The run of that id. Raises `StoreError` when there is none."""
        with self._database.read() as connection:
            row = connection.execute(sa.select(RUNS).where(RUNS.c.id == run)).mappings().first()
        if row is None:
            raise StoreError(f"{self.name}: holds no run {run[:60]}; `dabom clips runs` lists what is there")
        return _run(row)

    def all(self) -> list[Run]:
        """Every run, the newest first."""
        query = sa.select(RUNS).order_by(RUNS.c.created_at.desc(), RUNS.c.id)
        with self._database.read() as connection:
            return [_run(row) for row in connection.execute(query).mappings()]

    def items(self, run: str) -> list[RunItem]:
        """The items of a run in their order."""
        query = sa.select(ITEMS).where(ITEMS.c.run == run).order_by(ITEMS.c.position)
        with self._database.read() as connection:
            return [_item(row) for row in connection.execute(query).mappings()]

    def attempts(self, run: str) -> Iterator[Attempt]:
        """Every attempt of a run, by item and number, read in pages."""
        place = (-1, -1)
        while True:
            key = sa.tuple_(ATTEMPTS.c.position, ATTEMPTS.c.number)
            after = key > sa.tuple_(*(sa.literal(part) for part in place))
            query = sa.select(ATTEMPTS).where(ATTEMPTS.c.run == run, after)
            query = query.order_by(ATTEMPTS.c.position, ATTEMPTS.c.number).limit(_PAGE)
            with self._database.read() as connection:
                page = [_attempt(row) for row in connection.execute(query).mappings()]
            yield from page
            if len(page) < _PAGE:
                return
            place = (page[-1].position, page[-1].number)

    def tried(self, run: str) -> dict[int, int]:
        """How many attempts each item has had, by position; items without any are left out."""
        count = sa.func.count(ATTEMPTS.c.number)
        query = sa.select(ATTEMPTS.c.position, count).where(ATTEMPTS.c.run == run)
        with self._database.read() as connection:
            return {row[0]: row[1] for row in connection.execute(query.group_by(ATTEMPTS.c.position))}

    def counts(self, run: str) -> dict[str, int]:
        """Items by state."""
        query = sa.select(ITEMS.c.state, sa.func.count()).where(ITEMS.c.run == run).group_by(ITEMS.c.state)
        with self._database.read() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def record(self, run: str, attempt: Attempt, state: ItemState) -> bool:
        """Write an attempt and what becomes of its item, in one transaction.

        An item that has its result keeps it: then nothing is written, and the answer is False.
        """
        own = sa.and_(ITEMS.c.run == run, ITEMS.c.position == attempt.position)
        values: dict[str, Any] = {"state": state, "code": attempt.code}
        if state != "open":
            values["attempt"] = attempt.number
        with self._database.write() as connection:
            update = sa.update(ITEMS).where(own, ITEMS.c.state == "open").values(**values)
            if not connection.execute(update).rowcount:
                return False
            connection.execute(sa.insert(ATTEMPTS), {"run": run, **_attempt_row(attempt)})
        return True

    def set_state(self, run: str, state: RunState) -> None:
        """Note where a run stands; anything but running has an end."""
        ended_at = None if state == "running" else time.time()
        update = sa.update(RUNS).where(RUNS.c.id == run).values(state=state, ended_at=ended_at)
        with self._database.write() as connection:
            connection.execute(update)

    def erase(self, run: str, record: Mapping[str, Any]) -> Head:
        """Remove a run and all of its own, and write `record` into the audit chain, in one transaction.

        Raises `StoreError`; then nothing is removed.
        """
        with self._database.write() as connection:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql(
                    "PRAGMA secure_delete=ON"
                )  # the bytes go too, not their place alone
            connection.execute(sa.delete(ATTEMPTS).where(ATTEMPTS.c.run == run))
            connection.execute(sa.delete(ITEMS).where(ITEMS.c.run == run))
            if not connection.execute(sa.delete(RUNS).where(RUNS.c.id == run)).rowcount:
                raise StoreError(f"{self.name}: holds no run {run[:60]}")
            head = append_records(connection, [record])
        self._database.settle()
        return head

    @contextmanager
    def held(self, run: str) -> Iterator[None]:
        """Keep every other process from working on the run. Raises `StoreError` when one does."""
        with self._database.hold(run):
            yield


def open_runs(text: str, *, read_only: bool = False) -> Runs:
    """The runs of a database; see `open_database`."""
    return Runs(open_database(text, read_only=read_only))


def _item_row(run: str, item: RunItem) -> dict[str, Any]:
    row = {name: getattr(item, name) for name in ITEMS.columns.keys() if name != "run"}  # noqa: SIM118
    return {**row, "run": run, "facts": msgspec.json.encode(item.facts)}


def _attempt_row(attempt: Attempt) -> dict[str, Any]:
    row = {name: getattr(attempt, name) for name in ATTEMPTS.columns.keys() if name != "run"}  # noqa: SIM118
    row |= {name: msgspec.json.encode(row[name]) for name in ("codes", "usage", "asked")}
    return row | {name: row[name].encode("utf-8", "replace") for name in ("raw", "text")}


def _run(row: RowMapping) -> Run:
    values = _values(row)
    return Run(**{**values, "settings": msgspec.json.decode(values["settings"])})


def _item(row: RowMapping) -> RunItem:
    values = _values(row)
    return RunItem(**{**values, "facts": msgspec.json.decode(values["facts"])})


def _attempt(row: RowMapping) -> Attempt:
    values = _values(row)
    values |= {name: msgspec.json.decode(values[name]) for name in ("usage", "asked")}
    values |= {name: values[name].decode() for name in ("raw", "text")}
    return Attempt(**{**values, "codes": tuple(msgspec.json.decode(values["codes"]))})


def _values(row: RowMapping) -> dict[str, Any]:
    """A row without the run that it belongs to, which whoever reads it knows."""
    return {str(name): value for name, value in row.items() if name != "run"}
