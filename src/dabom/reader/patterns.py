"""A short text that a regular expression matches, for the common constructs."""

from __future__ import annotations

import re
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_MAX_REPEAT = 2_000
_CLASSES = {
    constants.CATEGORY_DIGIT: "0",
    constants.CATEGORY_WORD: "a",
    constants.CATEGORY_SPACE: " ",
    constants.CATEGORY_NOT_DIGIT: "a",
    constants.CATEGORY_NOT_WORD: "-",
    constants.CATEGORY_NOT_SPACE: "a",
}
_TRIED = "a0A-_ .:가/@#"


def example_of(pattern: str, least: int = 0) -> str | None:
    """The shortest text found that matches, at least `least` characters long; None when none was found."""
    try:
        parsed = parser.parse(pattern)
        for extra in (0, least):
            made = _sequence(parsed, extra)
            if len(made) >= least and re.search(pattern, made):
                return made
    except (re.error, OverflowError, ValueError, KeyError, RecursionError):
        return None
    return None


def _sequence(parsed: Any, extra: int) -> str:
    return "".join(_one(name, value, extra) for name, value in parsed)


def _one(name: Any, value: Any, extra: int) -> str:
    if name is constants.LITERAL:
        return chr(value)
    if name is constants.NOT_LITERAL:
        return next(each for each in _TRIED if ord(each) != value)
    if name is constants.ANY:
        return "a"
    if name is constants.IN:
        return _member(value)
    if name in {constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT}:
        low, high, part = value
        times = min(int(high), max(int(low), extra))
        if times > _MAX_REPEAT:
            raise ValueError("too long")
        return _sequence(part, 0) * times
    if name is constants.BRANCH:
        return _sequence(value[1][0], extra)
    if name in {constants.SUBPATTERN, constants.ATOMIC_GROUP}:
        return _sequence(value[-1] if name is constants.SUBPATTERN else value, extra)
    if name in {constants.AT, constants.ASSERT_NOT}:
        return ""
    if name is constants.ASSERT:
        return ""
    raise ValueError("construct is not covered")


def _member(parts: list[tuple[Any, Any]]) -> str:
    if parts[0][0] is constants.NEGATE:
        return next(each for each in _TRIED if not any(_holds(part, each) for part in parts[1:]))
    name, value = parts[0]
    if name is constants.LITERAL:
        return chr(value)
    if name is constants.RANGE:
        return chr(value[0])
    return _CLASSES[value]


def _holds(part: tuple[Any, Any], letter: str) -> bool:
    name, value = part
    if name is constants.LITERAL:
        return bool(ord(letter) == value)
    if name is constants.RANGE:
        return bool(value[0] <= ord(letter) <= value[1])
    if value is constants.CATEGORY_DIGIT:
        return letter.isdigit()
    if value is constants.CATEGORY_SPACE:
        return letter.isspace()
    return letter.isalnum() or letter == "_"
