"""What can be wrong with an answer, each with a code. Pure functions: an answer in, codes out.

A code in `FAILING` makes the attempt fail; any other is a note that the result carries.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import jsonschema
import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EMPTY = "empty"
CUT = "cut_at_length"
INVALID = "invalid_schema"
FOREIGN = "foreign_script"
REPEATED = "repetition"
SOUND_MISSING = "sound_missing"
SOUND_UNLIKE = "sound_unlike"
PICTURE_UNLIKE = "picture_unlike"
LEAK = "template_leak"
SOUND_UNPROVEN = "sound_unproven"
NO_SOUND = "no_sound_track"
SAME = "same_as_neighbour"

FAILING = (EMPTY, CUT, INVALID, REPEATED, FOREIGN, SOUND_MISSING, SOUND_UNLIKE)
"""The first of these that is found is the attempt's code."""
NOTES = (LEAK, SOUND_UNPROVEN, PICTURE_UNLIKE, NO_SOUND, SAME)

_LEAK = re.compile(r"\s*(?:<\|im_start\|>\s*)?assistant(?:\s*[>:：]\s*|\s*\n)|\s*<\|im_start\|>\s*")
_LEFT_OVER = re.compile(r"\s*<\|(?:im_end|endoftext)\|>\s*$")
_LEAST_LETTERS = 20
_MOST_FOREIGN = 0.1
_FOREIGN = ("CJK UNIFIED", "CJK COMPATIBILITY", "HIRAGANA", "KATAKANA", "CYRILLIC")
_SHOWN = "on_screen_text"
_MOST_PERIOD = 120
_LEAST_REPEATS = 6
_LEAST_REPEATED = 48
_SPACES = re.compile(r"\s{48}")
"""What a grammar allows a model to loop in."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What the checks look at. `tokens` is the server's `multimodal_tokens`, None when it told none."""

    text: str
    finish_reason: str | None = "stop"
    sound: bool = False
    predicted: Mapping[str, int] = field(default_factory=dict)
    tokens: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """`text` is the answer without a leak, `value` what it holds when it is JSON, `codes` what was found."""

    text: str
    value: Any
    codes: tuple[str, ...]

    @property
    def failure(self) -> str:
        """The code that makes the answer fail; empty when none does."""
        return next((code for code in FAILING if code in self.codes), "")


def check(answered: Answered, schema: Mapping[str, Any]) -> Checked:
    """Every check over one answer."""
    text, leaked = strip_leak(answered.text)
    value, valid = parse(text, schema)
    codes = [LEAK] if leaked else []
    if not text.strip():
        codes.append(EMPTY)
    else:
        if answered.finish_reason == "length":
            codes.append(CUT)
        if not valid:
            codes.append(INVALID)
        strings = list(strings_in(value)) if valid else [("", text)]
        if valid and strings and not any(part.strip() for _, part in strings):
            codes.append(EMPTY)
        if _SPACES.search(text) or any(repeats(part) for _, part in strings):
            codes.append(REPEATED)
        # what the model read off the screen may be in any script
        if foreign_share(" ".join(part for name, part in strings if name != _SHOWN)) > _MOST_FOREIGN:
            codes.append(FOREIGN)
    return Checked(text, value if valid else None, (*codes, *check_tokens(answered)))


def strip_leak(text: str) -> tuple[str, bool]:
    """The text without what the chat template leaked into its start and end, and whether it did."""
    found = _LEAK.match(text)
    bare = _LEFT_OVER.sub("", text[found.end() :] if found else text)
    return bare, bare != text


def parse(text: str, schema: Mapping[str, Any]) -> tuple[Any, bool]:
    """The value of a JSON text, and whether it is valid."""
    try:
        value = msgspec.json.decode(text)
        jsonschema.validate(value, schema)
    except (msgspec.DecodeError, UnicodeError, RecursionError, jsonschema.ValidationError):
        return None, False
    return value, True


def strings_in(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The strings of a value, each with the name of its field."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from strings_in(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner, name)


def foreign_share(text: str) -> float:
    """The share of Han, kana and Cyrillic among the letters; 0 for a text of few letters."""
    letters = [char for char in text if char.isalpha()]
    if len(letters) < _LEAST_LETTERS:
        return 0.0
    foreign = sum(ord(char) > 0x3FF and unicodedata.name(char, "").startswith(_FOREIGN) for char in letters)
    return foreign / len(letters)


def repeats(text: str) -> bool:
    """Something is said six times in a row, or more, over at least 48 characters."""
    for period in range(1, min(_MOST_PERIOD, len(text) // _LEAST_REPEATS) + 1):
        least = max(_LEAST_REPEATED, period * _LEAST_REPEATS) - period
        run = 0
        for one, other in zip(text, text[period:], strict=False):
            run = run + 1 if one == other else 0
            if run >= least:
                return True
    return False


def check_tokens(answered: Answered) -> Iterator[str]:
    """Whether the server's counts prove that it used the picture and the sound."""
    if answered.tokens is None:
        if answered.sound:
            yield SOUND_UNPROVEN
        return
    found = answered.tokens
    if answered.sound and not found.get("audio"):
        yield SOUND_MISSING
    elif answered.sound and found.get("audio") != answered.predicted.get("audio", found.get("audio")):
        yield SOUND_UNLIKE
    # a clip that is heard shows one span under both: what is wrong with it has been told then
    elif found.get("video", 0) != answered.predicted.get("video", found.get("video", 0)):
        yield PICTURE_UNLIKE


def same_as_neighbour(answers: list[str]) -> list[bool]:
    """Of answers in the order of their clips: which are word for word those before or after them."""
    if not answers:
        return []
    plain = [" ".join(answer.split()) for answer in answers]
    pairs = [bool(one) and one == other for one, other in pairwise(plain)]
    return [before or after for before, after in zip([False, *pairs], [*pairs, False], strict=True)]
