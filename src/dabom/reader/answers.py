"""Answers in the shape of vLLM's chat completions, streamed or whole, and errors in its shape."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dabom.reader import tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dabom.errors import DabomError
    from dabom.reader.ask import Ask

_PIECES_A_CHUNK = 8
_TYPES = {
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    413: "BadRequestError",
    500: "InternalServerError",
}


@dataclass(frozen=True)
class Answer:
    """The text that is sent, where it ended, and what it counts."""

    pieces: tuple[str, ...]
    finish_reason: str
    stop_reason: str | None
    prompt_tokens: int

    @property
    def content(self) -> str:
        """The whole text."""
        return "".join(self.pieces)

    @property
    def usage(self) -> dict[str, Any]:
        """Counts by the rule of `tokens`."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + len(self.pieces),
            "completion_tokens": len(self.pieces),
            "prompt_tokens_details": None,
        }


def make_answer(ask: Ask, content: str, media_tokens: int) -> Answer:
    """Cut a text at the first stop word and at `max_tokens`, and count it."""
    ends = [(at, word) for word in ask.stop if (at := content.find(word)) >= 0]
    stop_at, stop_word = min(ends, default=(len(content), None))
    pieces = tokens.split(content[:stop_at])
    prompt = tokens.count(ask.text) + media_tokens
    if ask.max_tokens is not None and len(pieces) > ask.max_tokens:
        return Answer(tuple(pieces[: ask.max_tokens]), "length", None, prompt)
    return Answer(tuple(pieces), "stop", stop_word, prompt)


def whole(ask: Ask, answer: Answer) -> bytes:
    """A chat.completion object."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": answer.content,
        "refusal": None,
        "tool_calls": [],
        "reasoning": None,
    }
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": answer.finish_reason,
        "stop_reason": answer.stop_reason,
    }
    return _dump({**_head(ask, "chat.completion"), "choices": [choice], "usage": answer.usage})


def events(ask: Ask, answer: Answer) -> Iterator[bytes]:
    """The same as server-sent events: role, deltas, finish, usage when asked for, [DONE]."""
    head = _head(ask, "chat.completion.chunk")
    yield _event(head, {"role": "assistant", "content": ""}, None, None)
    for at in range(0, len(answer.pieces), _PIECES_A_CHUNK):
        delta = {"content": "".join(answer.pieces[at : at + _PIECES_A_CHUNK])}
        yield _event(head, delta, None, None)
    yield _event(head, {}, answer.finish_reason, answer.stop_reason)
    if ask.include_usage:
        yield b"data: " + _dump({**head, "choices": [], "usage": answer.usage}) + b"\n\n"
    yield b"data: [DONE]\n\n"


def error(fault: DabomError) -> bytes:
    """An error in vLLM's shape: `{"error": {"message", "type", "param", "code"}}`, code being the status."""
    kind = _TYPES.get(fault.status, "BadRequestError" if fault.status < 500 else "ServiceUnavailableError")
    found = {"message": fault.message, "type": kind, "param": fault.param, "code": fault.status}
    return _dump({"error": found})


def _head(ask: Ask, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex[:16]}",
        "object": kind,
        "created": int(time.time()),
        "model": ask.model,
        "system_fingerprint": "dabom-reader",
    }


def _event(head: dict[str, Any], delta: dict[str, str], finish: str | None, stop: str | None) -> bytes:
    choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    if finish is not None:
        choice["stop_reason"] = stop
    return b"data: " + _dump({**head, "choices": [choice]}) + b"\n\n"


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
