"""Masking of text, whole or in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dabom.gateway.masking.detect import CONTEXT_CHARS, fold

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dabom.gateway.masking.detect import Detector

    Found = Callable[[str], None]
    """Is told the kind of each finding."""

STAR = "*"


def mask_text(text: str, detectors: Sequence[Detector], found: Found, *, code: bool = False) -> str:
    """`text` with its findings masked; the very same object when there are none.

    `code`: the text is JSON, such as a tool's arguments. There, digits without a dash become zeros: a star in
    a bare number would make the text no JSON.
    """
    stream = TextStream(detectors, found, code=code)
    masked = stream.add(text) + stream.end()
    return text if masked == text else masked


class TextStream:
    """Text that comes in pieces. What could be the beginning of a finding is held until that is clear."""

    def __init__(self, detectors: Sequence[Detector], found: Found, *, code: bool = False) -> None:
        self._detectors = detectors
        self._found = found
        self._code = code
        self._before = ""
        """The folded end of what has been given out."""
        self._held = ""

    @property
    def holds(self) -> bool:
        """Whether something is held back."""
        return bool(self._held)

    def add(self, piece: str) -> str:
        """What can be given out now."""
        if not piece:
            return ""
        text = self._held + piece
        seen = self._before + fold(text)
        start = len(self._before)
        cut = min(self._decided(detector, seen) for detector in self._detectors)
        return self._give(text, seen, max(cut - start, 0))

    def end(self) -> str:
        """The rest, when no more is to come."""
        if not self._held:
            return ""
        return self._give(self._held, self._before + fold(self._held), len(self._held))

    def _decided(self, detector: Detector, seen: str) -> int:
        """Whatever a detector thinks, it may hold back no more than its longest finding."""
        return max(detector.pending(seen), len(seen) - detector.longest)

    def _give(self, text: str, seen: str, end: int) -> str:
        """Give out `text[:end]`, masked, and hold the rest. A finding is never cut."""
        start = len(self._before)
        parts: list[tuple[int, int]] = []
        last = start + end
        for detector in self._detectors:
            for finding in detector.find(seen):
                if start <= finding.start < last:
                    last = max(last, finding.end)
                    parts.append(finding.hidden)
                    self._found(detector.kind)
        given = self._hide(text[: last - start], parts, seen)
        self._before = seen[:last][-CONTEXT_CHARS:]
        self._held = text[last - start :]
        return given

    def _hide(self, given: str, parts: list[tuple[int, int]], seen: str) -> str:
        """`given` with these parts of `seen` masked."""
        if not parts:
            return given
        offset, done, shown = len(self._before), 0, list[str]()
        for start, end in sorted(parts):
            mark = "0" if self._code and _bare(seen, start) else STAR
            first, after = max(start - offset, done), end - offset
            shown += given[done:first], mark * (after - first)
            done = max(done, after)
        return "".join([*shown, given[done:]])


def _bare(seen: str, first: int) -> bool:
    """Whether what is hidden may be of a number of JSON: no quote and no dash before its digits."""
    while first > 0 and seen[first - 1].isdigit():
        first -= 1
    return seen[first - 1 : first] not in ('"', "-")
