"""Server-sent events as bytes: where they end, what a comment and an error look like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from dabom.errors import DabomError

MEDIA_TYPE = b"text/event-stream"
COMMENT = b": keep-alive\n\n"

_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_MAX_HELD = 64 * 1024
_ERROR = b'data: {"error"'
_DONE = b"data: [DONE]"


def error_event(error: DabomError) -> bytes:
    """An event that OpenAI's clients raise as an error."""
    return data_event(msgspec.json.encode(error.body()))


def data_event(text: bytes) -> bytes:
    """One event; `text` is a single line."""
    return b"data: " + text + b"\n\n"


class Events:
    """Passes on whole events only, so that whatever is sent next stands between two events.

    A chunk that ends where an event ends, which is what servers send, goes through untouched. Otherwise the
    beginning of the next event waits for its end; no client could have used it before.
    """

    def __init__(self) -> None:
        self.failed = False
        """The upstream itself has told of an error."""
        self.done = False
        """The upstream has said [DONE]."""
        self.between = True
        """What has been sent ends with an event. False inside an event too long to be held back."""
        self._held = b""

    def whole(self, chunk: bytes) -> bytes:
        """What can be sent now."""
        if self._held or not self.between or not chunk.endswith(_ENDS):
            chunk = self._cut(self._held + chunk)
        if _find_event(chunk, _ERROR) >= 0:
            self.failed = True
        done_at = _find_event(chunk, _DONE)
        if done_at >= 0:
            self.done = True
            if self.failed:
                # vLLM says [DONE] after an engine crash; a client would take the answer for a whole one
                return chunk[:done_at]
        return chunk

    def rest(self) -> bytes:
        """What was held back, for an upstream that ends in order without a blank line."""
        held, self._held = self._held, b""
        return held

    def _cut(self, text: bytes) -> bytes:
        end = max(text.rfind(mark) + len(mark) if mark in text else 0 for mark in _ENDS)
        if end:
            self.between = True
        if len(text) - end > _MAX_HELD or not self.between:
            self.between = False
            end = len(text)
        self._held = text[end:]
        return text[:end]


def _find_event(chunk: bytes, start: bytes) -> int:
    """Where an event begins with `start`, or -1."""
    at = chunk.find(start)
    while at > 0 and chunk[at - 1] not in b"\r\n":
        at = chunk.find(start, at + 1)
    return at
