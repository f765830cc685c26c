"""Build the body of a chat completion as bytes, once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from dabom.client.parts import Part
from dabom.client.parts import text as text_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]

_STREAM = b',"stream":true,"stream_options":{"include_usage":true}}'


@dataclass(frozen=True, slots=True)
class Message:
    """One turn; `extra` holds fields such as `tool_calls` or `tool_call_id`."""

    role: Role
    parts: tuple[Part, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """A finished body in pieces that are never joined for sending. Its repr tells the size only."""

    pieces: tuple[bytes, ...]
    prompts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Request({self.size:,} bytes)"

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return sum(map(len, self.pieces))

    @property
    def body(self) -> bytes:
        """The body in one piece: a copy."""
        return b"".join(self.pieces)

    def streamed(self) -> Request:
        """The same request, asking for server-sent events; the media bytes are shared, not copied."""
        return Request((*self.pieces[:-1], self.pieces[-1][:-1], _STREAM), self.prompts)


def user(*parts: Part | str) -> Message:
    """A user's turn."""
    return Message("user", tuple(text_part(part) if isinstance(part, str) else part for part in parts))


def system(value: str) -> Message:
    """The system turn."""
    return Message("system", (text_part(value),))


def request(messages: Message | Sequence[Message], **fields: Any) -> Request:
    """A chat completion over these turns; `fields` become the other top-level fields, those of None left out.

    `stream` is not a field: `Client.stream` asks for it.
    """
    if "stream" in fields or "messages" in fields:
        raise TypeError("`stream` and `messages` are set by the client")
    turns = [messages] if isinstance(messages, Message) else list(messages)
    prompts = tuple(part.prompt for turn in turns for part in turn.parts if part.prompt)
    given = {name: value for name, value in fields.items() if value is not None}
    model = given.pop("model", None)
    head = b"{" if model is None else b'{"model":' + msgspec.json.encode(model) + b","
    rest = msgspec.json.encode(given)
    comma = b"," if given else b""
    return Request((head + b'"messages":[', *_turns(turns), b"]" + comma + rest[1:]), prompts)


def _turns(turns: Sequence[Message]) -> Iterator[bytes]:
    for number, turn in enumerate(turns):
        yield b"," if number else b""
        yield from _turn(turn)


def _turn(turn: Message) -> Iterator[bytes]:
    head = msgspec.json.encode({"role": turn.role, **turn.extra})[:-1]
    if not turn.parts:
        yield head + b"}"
        return
    if len(turn.parts) == 1 and turn.parts[0].kind == "text":
        # A lone text is sent as a plain string: text-only servers read no list of parts.
        yield head + b',"content":' + msgspec.json.encode(turn.parts[0].prompt) + b"}"
        return
    yield head + b',"content":['
    for number, part in enumerate(turn.parts):
        if number:
            yield b","
        yield part.json
    yield b"]}"


def schema_format(schema: Mapping[str, Any], name: str = "answer") -> dict[str, Any]:
    """The `response_format` that holds the answer to a JSON Schema."""
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}
