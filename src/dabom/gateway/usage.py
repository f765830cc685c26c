"""Tokens as the upstream reports them, read from the end of an answer: nothing is parsed or built."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dabom.gateway.account import Record

TAIL_BYTES = 4096
_PIECES = 16
_NAME = b'"usage"'
_OBJECT = re.compile(rb'"usage"\s*:\s*\{')
_PROMPT = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,12})\b')
_ANSWER = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,12})\b')


class Tail:
    """The last pieces of an answer, by reference."""

    __slots__ = ("_pieces", "add")

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque(maxlen=_PIECES)
        self.add = self._pieces.append
        """Remember a piece; the oldest is forgotten."""

    def bytes(self) -> bytes:
        """At most the last `TAIL_BYTES`."""
        return b"".join(piece[-TAIL_BYTES:] for piece in self._pieces)[-TAIL_BYTES:]


def read_usage(tail: bytes) -> tuple[int | None, int | None]:
    """Tokens of the prompt and of the answer by the last `usage` object; None for what is not told."""
    start = tail.rfind(_NAME)
    while start >= 0:
        # within a JSON string each quote has a backslash before it: what somebody wrote about usage is none
        if tail[start - 1 : start] != b"\\" and _OBJECT.match(tail, start):
            prompt, answer = _PROMPT.search(tail, start), _ANSWER.search(tail, start)
            return (int(prompt[1]) if prompt else None), (int(answer[1]) if answer else None)
        start = tail.rfind(_NAME, 0, start)
    return None, None


def note_usage(record: Record, tail: bytes) -> None:
    """Write what the upstream told into the record, unless somebody has done so."""
    if record.prompt_tokens is None and record.answer_tokens is None and 200 <= record.status < 300:
        record.prompt_tokens, record.answer_tokens = read_usage(tail)
