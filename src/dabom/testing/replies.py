"""Builders of scripts: whole answers as lists of steps, and ways to slow or cut them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from dabom.testing.steps import Close, Reset, Send, Step, Wait

Headers = Iterable[tuple[str, str]]


def chunk(octets: bytes) -> bytes:
    """One chunk of a chunked body. `chunk(b"")` ends the body."""
    return b"%x\r\n%b\r\n" % (len(octets), octets)


def head(status: int = 200, headers: Headers = ()) -> bytes:
    """Status line and headers, with the empty line."""
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = "Unknown"
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def raw_reply(
    body: bytes | Sequence[bytes], *, status: int = 200, headers: Headers = (), chunked: bool = False
) -> list[Step]:
    """An answer with these headers and the framing one. A sequence of pieces goes out piece by piece."""
    pieces = [body] if isinstance(body, bytes) else list(body)
    framing = ("transfer-encoding", "chunked") if chunked else ("content-length", str(sum(map(len, pieces))))
    start = head(status, [*headers, framing])
    if chunked:
        return [Send(start), *(Send(chunk(piece)) for piece in pieces if piece), Send(chunk(b""))]
    return [Send(start + b"".join(pieces))] if isinstance(body, bytes) else [Send(start), *map(Send, pieces)]


def json_reply(obj: Any, status: int = 200, headers: Headers = (), chunked: bool = False) -> list[Step]:
    """A JSON answer, compact."""
    kind = [("content-type", "application/json")]
    return raw_reply(msgspec.json.encode(obj), status=status, headers=[*kind, *headers], chunked=chunked)


def error_reply(
    status: int,
    message: str = "scripted error",
    *,
    kind: str = "BadRequestError",
    headers: Headers = (),
) -> list[Step]:
    """An error in vLLM's shape."""
    error = {"message": message, "type": kind, "param": None, "code": status}
    return json_reply({"error": error}, status, headers)


def sse_reply(
    events: Iterable[Any], *, gap_s: float = 0, done: bool = True, chunked: bool = True, headers: Headers = ()
) -> list[Step]:
    """A server-sent stream: the head, then one `Send` per event.

    An event that is `bytes` is sent as it is, anything else as `data: <json>`. Without `chunked` the body
    ends with the connection. `done` adds `data: [DONE]`.
    """
    framing = ("transfer-encoding", "chunked") if chunked else ("connection", "close")
    kind = ("content-type", "text/event-stream; charset=utf-8")
    steps: list[Step] = [Send(head(200, [kind, *headers, framing]))]
    wired = [event if isinstance(event, bytes) else sse_event(event) for event in events]
    for event in [*wired, sse_event("[DONE]")] if done else wired:
        if gap_s:
            steps.append(Wait(gap_s))
        steps.append(Send(chunk(event) if chunked else event))
    return [*steps, Send(chunk(b"")) if chunked else Close()]


def sse_event(obj: Any) -> bytes:
    """`data: ...` of one event; a `str` is sent as it is, anything else as JSON."""
    return b"data: %b\n\n" % (obj.encode() if isinstance(obj, str) else msgspec.json.encode(obj))


def chat_answer(text: str = "ok", *, model: str = "qwen", prompt_tokens: int = 3) -> dict[str, Any]:
    """A chat completion with this text."""
    message = {"role": "assistant", "content": text}
    words = len(text.split())
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": words,
            "total_tokens": prompt_tokens + words,
        },
    }


def chat_events(*texts: str, model: str = "qwen") -> list[dict[str, Any]]:
    """The chunks of a streamed chat completion, one per text, the last with `finish_reason`."""
    shared = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": model,
    }
    last = len(texts) - 1
    return [
        {
            **shared,
            "choices": [
                {"index": 0, "delta": {"content": text}, "finish_reason": "stop" if i == last else None}
            ],
        }
        for i, text in enumerate(texts)
    ]


def sent_bytes(steps: Iterable[Step]) -> bytes:
    """All that a script sends, joined."""
    return b"".join(step.octets for step in steps if isinstance(step, Send))


def cut_at(steps: Iterable[Step], octets: int, then: Step | None = None) -> list[Step]:
    """The script up to so many sent bytes, then `then` (default: `Reset()`)."""
    kept: list[Step] = []
    for step in steps:
        if not isinstance(step, Send):
            kept.append(step)
            continue
        if octets <= len(step.octets):
            kept.append(Send(step.octets[:octets]))
            break
        kept.append(step)
        octets -= len(step.octets)
    return [*kept, then or Reset()]


def drip(steps: Iterable[Step], size: int, gap_s: float = 0) -> list[Step]:
    """The same bytes in pieces of `size`, with a wait after each."""
    slow: list[Step] = []
    for step in steps:
        if not isinstance(step, Send):
            slow.append(step)
            continue
        for start in range(0, len(step.octets), size):
            slow += [Send(step.octets[start : start + size]), Wait(gap_s)]
    return slow
