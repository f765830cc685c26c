"""Server-sent events as bytes: where they end, what a comment and an error look like."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from dabom.gateway.headers import find, media_type

if TYPE_CHECKING:
    from dabom.errors import DabomError
    from dabom.gateway.asgi import Headers

MEDIA_TYPE = b"text/event-stream"
COMMENT = b": keep-alive\n\n"

_ENDS = (b"\n\n", b"\n\r\n", b"\r\r")
_LONGEST_END = 3
_MAX_HELD = 64 * 1024
_ERROR = re.compile(rb'(?:\A|[\r\n])data:[ \t]*\{[ \t]*"error"[ \t]*:[ \t]*[{"]')
_DONE = re.compile(rb"(?:\A|[\r\n])(?=data:[ \t]*\[DONE\][ \t]*(?:[\r\n]|\Z))")


def error_event(error: DabomError) -> bytes:
    """An event that OpenAI's clients raise as an error."""
    return data_event(msgspec.json.encode(error.body()))


def data_event(text: bytes) -> bytes:
    """One event; `text` is a single line."""
    return b"data: " + text + b"\n\n"


def readable(headers: Headers) -> bool:
    """Whether an answer is a stream of events that is not encoded; into another one nothing can be put."""
    kind, encoding = find(headers, b"content-type"), find(headers, b"content-encoding")
    return media_type(kind) == MEDIA_TYPE and encoding in (None, b"identity")


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
        self._tail = b""

    def whole(self, chunk: bytes) -> bytes:
        """What can be sent now."""
        if self._held or not self.between or not chunk.endswith(_ENDS):
            chunk = self._cut(self._held + chunk)
        return self._without_false_end(chunk)

    def rest(self) -> bytes:
        """What was held back, for an upstream that ends in order without a blank line."""
        held, self._held = self._held, b""
        return self._without_false_end(held)

    def _without_false_end(self, text: bytes) -> bytes:
        """vLLM says [DONE] after an engine crash; a client would take the answer for a whole one."""
        if b'"error"' in text and _ERROR.search(text):
            self.failed = True
        if b"[DONE]" in text and (done := _DONE.search(text)):
            self.done = True
            if self.failed:
                return text[: done.end()]
        return text

    def _cut(self, text: bytes) -> bytes:
        seen = self._tail + text
        end = max(seen.rfind(mark) + len(mark) if mark in seen else 0 for mark in _ENDS) - len(self._tail)
        self._tail = b""
        if end > 0:
            self.between = True
        if len(text) - max(end, 0) > _MAX_HELD or not self.between:
            self.between = False
            self._tail = seen[-_LONGEST_END:]
            end = len(text)
        self._held = text[max(end, 0) :]
        return text[: max(end, 0)]
