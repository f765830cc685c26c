"""What a scripted upstream saw of one request."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec


@dataclass(eq=False)
class Seen:
    """One request, filled while it arrives. Times are `time.monotonic()` seconds.

    `path` has the query. `headers` are as sent: order, case and repetitions. `complete` is true once the
    whole body is in; `finished_at` is set when the script has been played to its end, `disconnected_at`
    when the peer left before that.
    """

    method: str
    path: str
    headers: list[tuple[str, str]]
    started_at: float = field(default_factory=time.monotonic)
    complete_at: float | None = None
    finished_at: float | None = None
    disconnected_at: float | None = None
    body_bytes: int = 0
    keep_body: bool = True
    _pieces: list[bytes] = field(default_factory=list, init=False, repr=False)
    _hash: Any = field(default_factory=hashlib.sha256, init=False, repr=False)
    _whole: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)

    @property
    def body(self) -> bytes:
        """What has arrived of the body; empty with `keep_bodies=False`."""
        return b"".join(self._pieces)

    @property
    def sha256(self) -> str:
        """Hex digest of what has arrived of the body."""
        return str(self._hash.hexdigest())

    @property
    def complete(self) -> bool:
        return self.complete_at is not None

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever its case."""
        return next((v for k, v in self.headers if k.lower() == name.lower()), None)

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    async def wait_complete(self) -> None:
        await self._whole.wait()

    def add(self, piece: bytes) -> None:
        self.body_bytes += len(piece)
        self._hash.update(piece)
        if self.keep_body:
            self._pieces.append(piece)

    def end(self) -> None:
        self.complete_at = time.monotonic()
        self._whole.set()
