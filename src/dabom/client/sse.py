"""Read server-sent events from pieces of bytes, as the HTML standard (section 9.2.6) says."""

from __future__ import annotations

from dataclasses import dataclass

from dabom.errors import AnswerBroken

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Event:
    """One dispatched event; `data` has its lines joined with a line feed."""

    data: str
    name: str = "message"
    id: str = ""


class EventReader:
    """Turns pieces with any borders into events.

    An event counts only after its blank line: what is left when the stream ends was cut, and is dropped.
    An event over `max_event_bytes` raises `AnswerBroken`.
    """

    def __init__(self, max_event_bytes: int = 16 << 20) -> None:
        self._max = max_event_bytes
        self._line = bytearray()
        self._start = True
        self._after_cr = False
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name = ""
        self._id = ""

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completes."""
        if self._after_cr and piece:
            self._after_cr = False
            piece = piece.removeprefix(b"\n")
        if not piece:
            return []
        self._after_cr = piece.endswith(b"\r")
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *whole, rest = piece.split(b"\n")
        events: list[Event] = []
        for part in whole:
            line = bytes(self._line) + part if self._line else part
            self._line.clear()
            self._take(line, events)
        self._line += rest
        if len(self._line) + self._data_bytes > self._max:
            raise AnswerBroken(f"an event of the stream has over {self._max:,} bytes")
        return events

    def _take(self, line: bytes, events: list[Event]) -> None:
        if self._start:
            self._start = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(events)
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_bytes += len(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")

    def _dispatch(self, events: list[Event]) -> None:
        if self._data:
            data = b"\n".join(self._data).decode("utf-8", "replace")
            events.append(Event(data, self._name or "message", self._id))
        self._data.clear()
        self._data_bytes = 0
        self._name = ""
