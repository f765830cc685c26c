"""What is written down of a request: a JSON line and counters, made from facts and never from the body."""

from __future__ import annotations

import asyncio
import os
import select
import stat
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from dabom.gateway.audit import is_audited

if TYPE_CHECKING:
    from dabom.gateway.audit import Audit
    from dabom.gateway.facts import Facts
    from dabom.gateway.metrics import Metrics

_MAX_LINES_WAITING = 20_000
_FLUSH_S = 0.05
_LOOK_MS = 250
_FILE_PIECE_BYTES = 2**20


class Record(msgspec.Struct, omit_defaults=True):
    """One line of the log. Sizes in bytes, times in milliseconds."""

    request_id: str
    path: str
    time: float = 0.0
    method: str = "POST"
    upstream: str = ""
    route: str = ""
    reason: str = ""
    """Why it is that route; see docs/routing.md."""
    hops: tuple[str, ...] = ()
    """Targets that were asked in vain before `upstream`, and what they did."""
    key: str = ""
    model: str | None = None
    served: str = ""
    """What the upstream calls the model, and which revision of it that is, as far as somebody told."""
    revision: str = ""
    status: int = 0
    code: str = ""
    stream: bool = False
    items: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    queue_ms: float = 0.0
    first_byte_ms: float | None = None
    total_ms: float = 0.0
    predicted_tokens: int | None = None
    """Tokens of the prompt, as the gateway counts them before it asks."""
    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    """Both as the upstream reports them in its `usage`; None when it tells nothing."""
    media: tuple[object, ...] = ()

    def note(self, facts: Facts) -> None:
        """Take over what is known of the body."""
        self.model = None if facts.model is None else facts.model[:128]
        self.stream = facts.stream
        self.media = facts.media
        self.bytes_in = facts.size


class Log:
    """Writes lines to a file descriptor from a thread: a slow reader of the log never stops the loop."""

    def __init__(self, descriptor: int, metrics: Metrics) -> None:
        self._descriptor = descriptor
        self._metrics = metrics
        self._lines: list[bytes] = []
        self._flushing = False
        self._closing = False
        self._writing = threading.Lock()
        self._encode = msgspec.json.Encoder().encode

    def write(self, record: msgspec.Struct) -> None:
        """Queue one line."""
        if len(self._lines) >= _MAX_LINES_WAITING:
            self._metrics.lines_lost.add()
            return
        self._lines.append(self._encode(record))
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_later(_FLUSH_S, self._flush)

    def close(self) -> None:
        """Write what is left, unless nobody takes it: the end of the process does not wait for that."""
        self._closing = True
        lines, self._lines = self._lines, []
        try:
            self._put(lines)
        except OSError:
            self._metrics.lines_lost.add(by=len(lines))

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        done = asyncio.get_running_loop().run_in_executor(None, self._put, lines)
        done.add_done_callback(partial(self._flushed, len(lines)))

    def _flushed(self, count: int, done: asyncio.Future[None]) -> None:
        self._flushing = False
        if done.cancelled() or done.exception() is not None:
            self._metrics.lines_lost.add(by=count)
        if self._lines:
            self._flushing = True
            asyncio.get_running_loop().call_later(_FLUSH_S, self._flush)

    def _put(self, lines: list[bytes]) -> None:
        rest = memoryview(b"".join(line + b"\n" for line in lines))
        with self._writing:
            room = select.poll()
            room.register(self._descriptor, select.POLLOUT)
            # what has room takes that much of a pipe without blocking
            regular = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
            piece = _FILE_PIECE_BYTES if regular else select.PIPE_BUF
            while rest:
                if room.poll(_LOOK_MS):
                    rest = rest[os.write(self._descriptor, rest[:piece]) :]
                elif self._closing:
                    raise TimeoutError("nobody takes the log")


class Accounts:
    """Opens a record when a request comes and closes it when it is over."""

    def __init__(self, log: Log, metrics: Metrics, audit: Audit | None = None) -> None:
        self._log = log
        self._audit = audit
        self.metrics = metrics

    @property
    def writable(self) -> bool:
        """Whether a new request can be accounted for as the settings demand."""
        return self._audit is None or self._audit.writable

    def admit(self) -> None:
        """Raises `AuditUnavailable` when a new request could not be accounted for."""
        if self._audit is not None:
            self._audit.admit()

    def shut(self) -> None:
        """Write what is left of the log and of the audit."""
        if self._audit is not None:
            self._audit.close()
        self._log.close()

    def open(self, request_id: str, path: str, method: str = "POST") -> Record:
        """A new record; its clock runs."""
        return Record(request_id, path, time=time.time(), method=method)

    def close(self, record: Record, path: str) -> None:
        """Write the line and count. `path` is one of the gateway's own: no client can invent a label."""
        record.total_ms = round((time.time() - record.time) * 1000, 2)
        self.metrics.answered(record, path)
        self._log.write(record)
        if self._audit is not None and is_audited(record, path):
            self._audit.write(record)
