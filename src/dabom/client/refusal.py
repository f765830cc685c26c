"""Turn an endpoint's error body into a typed error that holds neither prompt nor media."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from dabom.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_MAX_CHARS = 500
_RUN = 12
_MEDIA = re.compile(r"data:[\w/+.;=-]{0,80},[^\s'\"]*|[A-Za-z0-9+/_-]{64,}={0,2}")
_HIDDEN = "…"


def refusal(
    status: int, body: bytes, headers: Mapping[str, str] | None = None, prompts: Collection[str] = ()
) -> Refused:
    """The error of an answer with this status and body, in any of the shapes that servers use.

    OpenAI's object, a bare string (vLLM's 401), FastAPI's `detail`, or no JSON at all.
    """
    headers = headers or {}
    message, code = _read(body)
    message = hide(message or f"the endpoint answered {status} without a message", prompts)
    return Refused(
        message,
        status=status,
        code=code,
        request_id=headers.get("X-Request-Id"),
        retry_after_s=_seconds(headers.get("Retry-After")),
    )


def hide(message: str, prompts: Collection[str]) -> str:
    """The message, at most 500 characters, without base64 or 12 characters in a row of a prompt."""
    message = _MEDIA.sub(_HIDDEN, message[: 8 * _MAX_CHARS])
    runs = {run for prompt in prompts for run in _runs(prompt)}
    hidden = bytearray(len(message))
    for start in range(len(message)):
        if message[start : start + _RUN] in runs:
            hidden[start : start + _RUN] = b"\1" * _RUN
    shown = "".join("\0" if mark else char for mark, char in zip(hidden, message, strict=False))
    shown = re.sub("\0+", _HIDDEN, shown)
    for prompt in prompts:
        if 3 < len(prompt) < _RUN:
            shown = shown.replace(prompt, _HIDDEN)
    return shown if len(shown) <= _MAX_CHARS else shown[: _MAX_CHARS - 1] + _HIDDEN


def _runs(prompt: str) -> Iterator[str]:
    for spelling in {
        prompt,
        repr(prompt)[1:-1],
        json.dumps(prompt)[1:-1],
        json.dumps(prompt, ensure_ascii=False)[1:-1],
    }:
        for start in range(len(spelling) - _RUN + 1):
            yield spelling[start : start + _RUN]


def _read(body: bytes) -> tuple[str, str | None]:
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError):
        words = " ".join(re.sub(r"<[^>]*>", " ", body[:4000].decode("utf-8", "replace")).split())
        return words, None
    if not isinstance(value, dict):
        return str(value), None
    error = value.get("error", value.get("detail", value.get("message", "")))
    if isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]  # a batch line carries the upstream's whole error body
    code = value.get("code")
    if isinstance(error, dict):
        # vLLM's `code` repeats the status; its `type` is the word that tells errors apart.
        own = error.get("code")
        code = code or (own if isinstance(own, str) else error.get("type"))
        error = error.get("message", "")
    return error if isinstance(error, str) else msgspec.json.encode(error).decode(), code if isinstance(
        code, str
    ) else None


def _seconds(value: str | None) -> float | None:
    return float(value) if value and value.isascii() and value.isdigit() else None
