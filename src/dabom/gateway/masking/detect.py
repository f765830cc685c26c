"""What a detector of personal data is, and the text that it gets."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

CONTEXT_CHARS = 48
"""Characters before a text that a detector sees when the text comes in pieces: a label may stand there."""
# all but ASCII, Hangul and Chinese characters, which are what they are
_FOLDABLE = re.compile(r"[^\x00-\x7f가-힣ㄱ-ㆎ一-鿿]")
_DASHES = dict.fromkeys(map(ord, "‐‑‒–—―−﹘﹣－ー〜~"), "-")


class Finding(NamedTuple):
    """A piece of personal data at `start` to before `end`, and of it what must not be seen."""

    start: int
    end: int
    hidden: tuple[int, int]
    """Start and end of what is masked, within `start` and `end`."""


class Detector(Protocol):
    """Finds one kind of personal data. It keeps no state: one instance serves all answers."""

    @property
    def kind(self) -> str:
        """Its name in settings and metrics."""

    @property
    def longest(self) -> int:
        """Characters of the longest finding."""

    def find(self, text: str) -> Iterable[Finding]:
        """All findings in folded text, in their order, not overlapping."""

    def pending(self, text: str) -> int:
        """Where a finding may have begun of which the rest is still to come; `len(text)` when nowhere.

        What stands before is decided. A finding that touches the end of the text is pending when one more
        character could make it none. At most `longest` characters are held back.
        """


def fold(text: str) -> str:
    """The text as detectors want it, character by character: positions stay what they are.

    The digits of all scripts become those of ASCII, and all dashes one: `９００－` is `900-`. Else NFKC,
    where that gives one character.
    """
    return text if text.isascii() else _FOLDABLE.sub(_folded, text)


def _folded(found: re.Match[str]) -> str:
    character = found[0]
    dash = _DASHES.get(ord(character))
    if dash is not None:
        return dash
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    one = unicodedata.normalize("NFKC", character)
    return one if len(one) == 1 else character
