"""What an endpoint answers, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from dabom.client.refusal import refusal
from dabom.errors import AnswerBroken

if TYPE_CHECKING:
    from collections.abc import Collection

T = TypeVar("T")


class Usage(msgspec.Struct, frozen=True):
    """Tokens as the endpoint counted them."""

    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    total_tokens: int = 0


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None


class _Completion(msgspec.Struct, frozen=True):
    choices: list[_Choice]
    id: str = ""
    model: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer. `raw` is the body as it came."""

    text: str
    id: str
    model: str
    finish_reason: str | None
    usage: Usage | None
    reasoning: str
    tool_calls: list[dict[str, Any]]
    raw: bytes = field(repr=False)
    request_id: str | None = None

    def parse(self, type_: type[T]) -> T:
        """The text as JSON of that type; AnswerBroken when it is not, and says whether it was cut short."""
        try:
            return msgspec.json.decode(self.text, type=type_)
        except (msgspec.DecodeError, UnicodeError) as error:
            cut = "; it was cut at max_tokens: raise it" if self.finish_reason == "length" else ""
            raise AnswerBroken(
                f"the answer is not the JSON that was asked for ({error}){cut}", request_id=self.request_id
            ) from None


class Delta(msgspec.Struct, frozen=True):
    """What one event of a stream adds."""

    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    usage: Usage | None = None
    tool_calls: list[dict[str, Any]] = []


class _WireLine(msgspec.Struct, frozen=True):
    id: str
    status: int
    elapsed_ms: float = 0
    body: msgspec.Raw = msgspec.Raw()
    error: Any = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a batch: an item's fate. `body` is the upstream's very answer, empty when the item failed;
    `error` is a message or the upstream's error body."""

    id: str
    status: int
    elapsed_ms: float
    body: bytes = field(repr=False)
    error: Any = field(default=None, repr=False)
    code: str | None = None
    prompts: Collection[str] = field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        """The item was answered."""
        return self.status == 200 and self.error is None

    def answer(self) -> Answer:
        """The item's answer; raises Refused when it failed, AnswerBroken when it is no completion."""
        if not self.ok:
            told = msgspec.json.encode({"error": self.error, "code": self.code})
            raise refusal(self.status, told, prompts=self.prompts)
        return read_answer(self.body, None)


class Model(msgspec.Struct, frozen=True):
    """One row of `/v1/models`."""

    id: str
    owned_by: str = ""
    max_model_len: int | None = None


class _Models(msgspec.Struct, frozen=True):
    data: list[Model]


class Health(msgspec.Struct, frozen=True):
    """What the health path said."""

    ok: bool
    status: int
    request_id: str | None
    path: str


def read_answer(raw: bytes, request_id: str | None) -> Answer:
    """A completion's body as an `Answer`."""
    completion = _decode(raw, _Completion, request_id)
    if not completion.choices or completion.choices[0].message is None:
        raise AnswerBroken("the answer holds no choice with a message", request_id=request_id)
    choice = completion.choices[0]
    message = choice.message or _Message()
    return Answer(
        text=message.content or "",
        id=completion.id,
        model=completion.model,
        finish_reason=choice.finish_reason,
        usage=completion.usage,
        reasoning=message.reasoning or message.reasoning_content or "",
        tool_calls=message.tool_calls or [],
        raw=raw,
        request_id=request_id,
    )


def read_delta(data: str, request_id: str | None) -> Delta:
    """One event's data as a `Delta`; an event without choices carries the usage."""
    chunk = _decode(data.encode(), _Completion, request_id)
    choice = chunk.choices[0] if chunk.choices else _Choice()
    delta = choice.delta or choice.message or _Message()
    return Delta(
        text=delta.content or "",
        reasoning=delta.reasoning or delta.reasoning_content or "",
        finish_reason=choice.finish_reason,
        usage=chunk.usage,
        tool_calls=delta.tool_calls or [],
    )


def read_line(raw: bytes, request_id: str | None, prompts: Collection[str] = ()) -> Line:
    """One line of a batch; `prompts` are kept out of its errors."""
    wire = _decode(raw, _WireLine, request_id)
    return Line(wire.id, wire.status, wire.elapsed_ms, bytes(wire.body), wire.error, wire.code, prompts)


def read_models(raw: bytes, request_id: str | None) -> list[Model]:
    """The rows of `/v1/models`."""
    return _decode(raw, _Models, request_id).data


def _decode(raw: bytes, type_: type[T], request_id: str | None) -> T:
    try:
        return msgspec.json.decode(raw, type=type_)
    except (msgspec.DecodeError, UnicodeError):
        # The library's message can quote the answer; only its size is told.
        raise AnswerBroken(
            f"{len(raw):,} bytes came that are not the expected JSON", request_id=request_id
        ) from None
