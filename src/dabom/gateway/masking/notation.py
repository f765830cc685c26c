"""JSON as servers write it, which is not always JSON: what cannot be read could not be masked."""

from __future__ import annotations

import json
from typing import Any

import msgspec

_LONGEST_INTEGER = 4000
"""Digits; Python reads no longer ones."""


def read(text: bytes) -> Any:
    """The value of a text. Also with NaN and with halves of surrogate pairs, as Python's own `json` writes.

    Raises `ValueError` for what is no JSON at all, `RecursionError` for what is nested too deeply.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(text.decode(), parse_int=_integer)


def write(value: Any) -> bytes:
    """A value as one line of JSON; NaN becomes `null`, half of a pair stays an escape."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)
