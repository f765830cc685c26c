"""The audit of a gateway: one record per request, written by a thread that no relay waits for.

The loop puts finished records into a queue; the thread writes all that have come, in one transaction. When
the database cannot be written, `on_failure` decides: `refuse` lets in no new request until it works again,
`continue` serves on and counts what finds no room in the queue. What was refused or lost is written down
afterwards, as a record of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from dabom.errors import AuditUnavailable, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dabom.gateway.account import Record
    from dabom.gateway.metrics import Metrics

_LOGGER = logging.getLogger("dabom.gateway.audit")
_GATHER_S = 0.05
"""How long records gather for one transaction: so many are lost at most when the process is killed."""
_MAX_BATCH = 1000
_PORTION, _BREATH_S = 32, 0.0001
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
_CLOSE_S = 5.0
_PATH_CHARS = 256
_PAGES = frozenset({"GET", "HEAD"})


class AuditSettings(BaseModel):
    """Where and how the audit is written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database: SecretStr | None = Field(
        None,
        description="path of a SQLite file, or postgresql://USER@HOST/DATABASE; unset: no audit is written",
    )
    on_failure: Literal["refuse", "continue"] = Field(
        "refuse",
        description="when the database cannot be written: `refuse` new requests with 503 "
        "`audit_unavailable`, or `continue` and count what is not written",
    )
    max_waiting: int = Field(10_000, ge=1, description="records that wait to be written")
    gateway: str = Field(
        "", max_length=128, description="name of this gateway in its records; the host's name when empty"
    )


class Chain(Protocol):
    """What the audit is written to."""

    def append(self, records: Sequence[Mapping[str, Any]]) -> object:
        """Write all of them or none; raises `StoreError`. The same list may be given again."""

    def close(self) -> None:
        """No more is written."""


class Audit:
    """The queue and its thread. The public methods are called on the loop."""

    def __init__(
        self, settings: AuditSettings, metrics: Metrics, gateway: str, open_chain: Callable[[], Chain]
    ) -> None:
        self._refuses = settings.on_failure == "refuse"
        self._max_waiting = settings.max_waiting
        self._gateway = gateway
        self._open_chain = open_chain
        self._count = metrics.audit.add
        for outcome in ("written", "failed", "dropped", "refused"):
            self._count(outcome, by=0)  # the thread adds to what is there, and no new series while one reads
        metrics.audit_waiting.watch(read=lambda: len(self._queue))
        self._chain: Chain | None = None
        self._queue: deque[Record] = deque()
        self._gap = _Gap()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dabom-audit", daemon=True)
        self._failing = False

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    @property
    def writable(self) -> bool:
        """Whether a new request may come in."""
        return not self._refuses or (not self._failing and len(self._queue) < self._max_waiting)

    def admit(self) -> None:
        """Raises `AuditUnavailable` when a new request may leave no record."""
        if not self.writable:
            raise AuditUnavailable("the audit cannot be written now, and nothing is served without it")

    def write(self, record: Record) -> None:
        """Queue the record of a request that is over. Nobody may change it any more."""
        if record.code == AuditUnavailable.code:
            self._gap.refuse(record.time)
            self._count("refused")
            return
        # requests that were let in before the queue was full have the other half
        if len(self._queue) >= self._max_waiting * (2 if self._refuses else 1):
            self._gap.lose(record.time)
            self._count("dropped")
            return
        self._queue.append(record)  # and no more: to wake the thread would cost a hundred times as much

    def close(self, within_s: float = _CLOSE_S) -> None:
        """Write what waits, with one last try, and stop. Takes at most `within_s` seconds."""
        self._stop.set()
        self._thread.join(within_s)
        if self._queue or self._gap.pending:
            _LOGGER.error("audit: %d records were not written when the gateway ended", len(self._queue))

    def _run(self) -> None:
        ending = False
        while not ending:
            ending = self._stop.wait(_GATHER_S)
            while self._queue or self._gap.pending:
                if not self._put(min(len(self._queue), _MAX_BATCH)):
                    break
        if self._chain is not None:
            self._chain.close()

    def _put(self, count: int) -> bool:
        """Write the oldest `count` records, however long it takes. False when there is no more time."""
        gap = self._gap.take()
        records = [] if gap is None else [{**gap, "gateway": self._gateway}]
        for i in range(count):
            records.append(self._fields(self._queue[i]))
            if i % _PORTION == _PORTION - 1:
                time.sleep(_BREATH_S)  # the loop shall not wait until all are ready
        pause_s = _FIRST_PAUSE_S
        while records and not self._append(records):
            if self._stop.is_set():
                self._gap.give_back()
                return False
            self._stop.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        for _ in range(count):
            self._queue.popleft()
        self._count("written", by=len(records))
        return True

    def _fields(self, record: Record) -> dict[str, Any]:
        try:
            return entry(record, self._gateway)
        except Exception as error:  # noqa: BLE001 - a mistake in one record must not keep the others waiting
            return {"kind": "request", "request_id": _text(record.request_id), "flaw": type(error).__name__}

    def _append(self, records: Sequence[Mapping[str, Any]]) -> bool:
        try:
            if self._chain is None:
                self._chain = self._open_chain()
            self._chain.append(records)
        except StoreError as error:
            self._fail(error.message)
        except Exception as error:  # noqa: BLE001 - the thread would end, and nobody would hear of it
            self._fail(f"{type(error).__name__}; this is a mistake in Dabom")
        else:
            if self._failing:
                self._failing = False
                _LOGGER.warning("audit: the database can be written again")
            return True
        return False

    def _fail(self, reason: str) -> None:
        self._count("failed")
        if not self._failing:
            self._failing = True
            what = "new requests are refused" if self._refuses else "requests are served on"
            _LOGGER.error("audit: cannot write, %s until it works again: %s", what, reason)


class _Gap:
    """What was not written and is still to be told. Both threads use it, and only in bad times."""

    def __init__(self) -> None:
        self.lost = 0
        self.refused = 0
        self._told = (0, 0)
        self._taken = (0, 0)
        self._first_s = self._last_s = 0.0
        self._lock = threading.Lock()

    @property
    def pending(self) -> bool:
        """Whether there is something to be told."""
        return self._told != (self.lost, self.refused)

    def lose(self, time_s: float) -> None:
        """A record found no room."""
        with self._lock:
            self._see(time_s)
            self.lost += 1

    def refuse(self, time_s: float) -> None:
        """A request was not let in."""
        with self._lock:
            self._see(time_s)
            self.refused += 1

    def take(self) -> dict[str, Any] | None:
        """The fields of a record that tells what has not been told yet."""
        with self._lock:
            if not self.pending:
                return None
            lost, refused = self._told
            self._taken, self._told = self._told, (self.lost, self.refused)
            return {
                "kind": "gap",
                "time": _moment(self._last_s),
                "since": _moment(self._first_s),
                "lost": self.lost - lost,
                "refused": self.refused - refused,
            }

    def give_back(self) -> None:
        """What was taken last could not be told after all."""
        with self._lock:
            self._told = self._taken

    def _see(self, time_s: float) -> None:
        if not self.pending:
            self._first_s = time_s
        self._last_s = time_s


def is_audited(record: Record, path: str) -> bool:
    """Whether a request is written down: all but the reading of pages, such as /healthz and /metrics."""
    return path != "page" or record.method not in _PAGES


def entry(record: Record, gateway: str) -> dict[str, Any]:
    """The fields of an audit record: facts, never what anyone said or showed."""
    return {
        "kind": "request",
        "time": _moment(record.time),
        "gateway": gateway,
        "request_id": _text(record.request_id),
        "key": _text(record.key),
        "method": _text(record.method),
        "path": _text(record.path[:_PATH_CHARS]),
        "model": None if record.model is None else _text(record.model),
        "route": _text(record.route),
        "reason": _text(record.reason),
        "hops": [_text(hop) for hop in record.hops],
        "upstream": _text(record.upstream),
        "served": _text(record.served),
        "revision": _text(record.revision),
        "stream": record.stream,
        "items": record.items,
        "media": [msgspec.to_builtins(part) for part in record.media],
        "bytes": {"in": record.bytes_in, "out": record.bytes_out},
        "tokens": {
            "predicted": record.predicted_tokens,
            "prompt": record.prompt_tokens,
            "answer": record.answer_tokens,
        },
        "status": record.status,
        "code": record.code,
        "ms": {
            "queue": record.queue_ms,
            "first_byte": record.first_byte_ms,
            "total": record.total_ms,
        },
    }


def _moment(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="microseconds")


def _text(text: str) -> str:
    """Text that has bytes: half of a surrogate pair has none."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
