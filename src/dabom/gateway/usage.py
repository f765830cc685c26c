"""What an upstream reports at the end of its answer: tokens and revision. Nothing is parsed or built."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dabom.gateway.account import Record

TAIL_BYTES = 4096
_PIECES = 16
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_FINGERPRINT = re.compile(rb'"system_fingerprint"\s*:\s*"([A-Za-z0-9._:+-]{1,64})"')
_CHATS = frozenset({"/chat", "/chat/batch item", "/v1/chat/completions", "/v1/completions"})
"""Paths whose answers hold nothing that a client could have given a name to."""
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
    found = _last(_USAGE, b'"usage"', tail)
    if found is None:
        return None, None
    prompt, answer = _PROMPT.search(tail, found.end()), _ANSWER.search(tail, found.end())
    return (int(prompt[1]) if prompt else None), (int(answer[1]) if answer else None)


def note_usage(record: Record, tail: bytes) -> None:
    """Write what the upstream told into the record, unless somebody has done so."""
    if record.prompt_tokens is not None or record.answer_tokens is not None or not 200 <= record.status < 300:
        return
    record.prompt_tokens, record.answer_tokens = read_usage(tail)
    if not record.revision and record.path in _CHATS:
        found = _last(_FINGERPRINT, b'"system_fingerprint"', tail)
        record.revision = "" if found is None else found[1].decode()


def _last(pattern: re.Pattern[bytes], name: bytes, tail: bytes) -> re.Match[bytes] | None:
    """Where the last field of a name stands."""
    start = tail.rfind(name)
    while start > 0:
        # within a JSON string each quote has a backslash before it: what somebody wrote about a field is none
        if tail[start - 1 : start] != b"\\" and (found := pattern.match(tail, start)):
            return found
        start = tail.rfind(name, 0, start)
    return None
