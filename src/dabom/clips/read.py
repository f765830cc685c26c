"""From a line of a batch to an attempt that can be stored, and what becomes of its item."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from dabom.clips import checks, retry
from dabom.errors import AskError, Refused
from dabom.store import Attempt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dabom.client import Line
    from dabom.clips.retry import Rule
    from dabom.store.runs import ItemState


@dataclass(frozen=True, slots=True)
class Flight:
    """One item under way: which attempt it is, and what its request was."""

    position: int
    number: int
    started_at: float
    seed: int
    max_tokens: int
    sound: bool = False
    predicted: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    request_bytes: int = 0
    sha256: str = ""
    """Of the clip's bytes as they were sent; a control's own."""

    @property
    def asked(self) -> dict[str, Any]:
        """What is kept of the request."""
        return {
            "seed": self.seed,
            "max_tokens": self.max_tokens,
            "sound": self.sound,
            "predicted": dict(self.predicted),
            "bytes": self.request_bytes,
            "sha256": self.sha256,
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """An attempt, its item's state, and when the item is still open the rule and the wait of the next one."""

    attempt: Attempt
    state: ItemState
    rule: Rule | None = None
    wait_s: float = 0.0


class _Details(msgspec.Struct):
    multimodal_tokens: dict[str, int | None] | None = None
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Body(msgspec.Struct):
    usage: _Usage | None = None
    system_fingerprint: str | None = None
    metrics: dict[str, Any] | None = None


def read_outcome(line: Line, flight: Flight, schema: Mapping[str, Any]) -> Outcome:
    """What an item's line says."""
    try:
        answer = line.answer()
    except Refused as error:
        return failed(flight, error.code, line.status, error.message, line.elapsed_ms, error.retry_after_s)
    except AskError as error:
        return failed(flight, error.code, 502, error.message, line.elapsed_ms)
    usage, tokens = _usage(line.body)
    answered = checks.Answered(answer.text, answer.finish_reason, flight.sound, flight.predicted, tokens)
    found = checks.check(answered, schema)
    attempt = Attempt(
        flight.position,
        flight.number,
        flight.started_at,
        line.elapsed_ms,
        line.status,
        found.failure,
        (*flight.notes, *found.codes),
        answer.text,
        found.text,
        {**usage, "model": answer.model, "finish_reason": answer.finish_reason},
        flight.asked,
    )
    return _decided(attempt)


def timed(outcome: Outcome, now: float) -> Outcome:
    """With the time from its upload until its line came, which has the wait for a permit in it."""
    attempt = outcome.attempt
    wall_ms = round(max(0.0, now - attempt.started_at) * 1000, 1)
    return replace(outcome, attempt=replace(attempt, usage={**attempt.usage, "wall_ms": wall_ms}))


def failed(
    flight: Flight,
    code: str,
    status: int,
    message: str,
    elapsed_ms: float = 0.0,
    retry_after_s: float | None = None,
) -> Outcome:
    """An attempt without an answer."""
    attempt = Attempt(
        flight.position,
        flight.number,
        flight.started_at,
        elapsed_ms,
        status,
        code[:80],
        flight.notes,
        usage={"error": message},
        asked=flight.asked,
    )
    return _decided(attempt, retry_after_s)


def _decided(attempt: Attempt, retry_after_s: float | None = None) -> Outcome:
    if not attempt.code:
        return Outcome(attempt, "done")
    rule = retry.rule_of(attempt.code, attempt.status)
    if not retry.another(rule, attempt.number):
        return Outcome(attempt, "failed")
    return Outcome(attempt, "open", rule, retry.wait_s(rule, attempt.number, retry_after_s))


def _usage(body: bytes) -> tuple[dict[str, Any], dict[str, int] | None]:
    """What is kept of the server's counts, and its counts by modality; None when it gives none."""
    try:
        found = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeError):
        return {}, None  # counts of an unknown shape: the answer itself has been read
    usage = found.usage or _Usage()
    details = usage.prompt_tokens_details or _Details()
    told = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_tokens": details.cached_tokens,
        "fingerprint": found.system_fingerprint,
        "metrics": found.metrics,
    }
    kept = {name: value for name, value in told.items() if value is not None}
    if details.multimodal_tokens is None:
        return kept, None
    tokens = {name: count for name, count in details.multimodal_tokens.items() if count}
    return {**kept, "tokens": tokens}, tokens
