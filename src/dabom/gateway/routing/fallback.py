"""Whether a request goes on to the next target of its route, told by how the last one failed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from dabom.errors import PromptTooLong, QueueFull, QueueTimeout, TotalTimeout, UpstreamError

if TYPE_CHECKING:
    from dabom.errors import DabomError

Cause = Literal["failed", "busy", "long"]
"""`failed`: unreachable, broken, silent, 500, 502 or 504. `busy`: 429, 503, or no permit. `long`: the prompt
does not fit, so that only a target with more room can help."""

_FAILED, _BUSY, _REFUSED = frozenset({500, 502, 504}), frozenset({429, 503}), 400
_LOOKED_AT = 16 * 1024
_TOO_LONG = re.compile(
    rb"exceed_context_size_error|context_length_exceeded|exceeds? (?:this|the) (?:model's )?(?:maximum )?"
    rb"(?:model|context) (?:length|size)|maximum context length|model's context length"
    rb"|longer than the maximum model length"
)
_ROOM = re.compile(
    rb'context length is (?:only )?(\d{1,9})|maximum model length of (\d{1,9})|"n_ctx" ?: ?(\d{1,9})'
)
_DATA = re.compile(rb"^data:[ \t]*(\{.*)$", re.MULTILINE)


def cause_of_status(status: int, body: bytes) -> Cause | None:
    """Of an answer; None when another target would say the same. `body` is that of an error.

    vLLM and llama.cpp refuse a long prompt with 400 and words or a type of their own.
    """
    if status in _FAILED:
        return "failed"
    if status in _BUSY:
        return "busy"
    return "long" if status == _REFUSED and _TOO_LONG.search(body, 0, _LOOKED_AT) else None


def cause_of_error(error: DabomError) -> Cause | None:
    """Of an error that was met before the first byte of an answer."""
    if isinstance(error, PromptTooLong):
        return "long"
    if isinstance(error, UpstreamError):
        return None if type(error) is TotalTimeout else "failed"
    return "busy" if isinstance(error, QueueFull | QueueTimeout) else None


def status_of_event(text: bytes) -> tuple[int, bytes]:
    """Status and JSON of the error that a stream begins with: its `code` where that is a status, else 500."""
    found = _DATA.search(text)
    body = found[1] if found else b""
    try:
        code = msgspec.json.decode(body, type=_Event).error.code
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        code = None
    return (code if isinstance(code, int) and 400 <= code <= 599 else 500), body


def room_of(body: bytes) -> int | None:
    """Tokens that the model of a target takes, as its refusal tells."""
    found = _ROOM.search(body, 0, _LOOKED_AT)
    return int(next(group for group in found.groups() if group)) if found else None


class _Error(msgspec.Struct):
    code: int | str | float | None = None


class _Event(msgspec.Struct):
    error: _Error
