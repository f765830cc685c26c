"""A body in which a few spans are replaced: everything else stays the bytes that came."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Edit(NamedTuple):
    """What stands from `start` to before `end` becomes `text`. Offsets are those of the body as it came."""

    start: int
    end: int
    text: bytes


def splice(body: Sequence[bytes | memoryview], edits: Iterable[Edit]) -> list[bytes | memoryview]:
    """The pieces of the changed body. Nothing is copied: they are views of what came.

    `edits` may come in any order. Of two that overlap the one that begins first holds, of equals the wider.
    """
    pieces: list[bytes | memoryview] = []
    ordered = sorted(edits, key=lambda edit: (edit.start, -edit.end))
    cut = _Cutter(body)
    position = 0
    for edit in ordered:
        if edit.start < position:
            continue
        pieces += cut.between(position, edit.start)
        pieces.append(edit.text)
        position = edit.end
    pieces += cut.between(position, cut.size)
    return [piece for piece in pieces if len(piece)]


class _Cutter:
    """Takes spans out of a body in rising order."""

    def __init__(self, body: Sequence[bytes | memoryview]) -> None:
        self.size = sum(len(chunk) for chunk in body)
        self._body = body
        self._index = 0
        self._begins = 0

    def between(self, start: int, end: int) -> Iterable[memoryview]:
        while start < end:
            chunk = self._body[self._index]
            ends = self._begins + len(chunk)
            if ends <= start:
                self._index, self._begins = self._index + 1, ends
                continue
            stop = min(end, ends)
            yield memoryview(chunk)[start - self._begins : stop - self._begins]
            start = stop
