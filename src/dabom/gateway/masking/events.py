"""Masking of a stream of events: each choice and each call of a tool is one text that comes in pieces."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dabom.errors import UpstreamBroken
from dabom.gateway import sse
from dabom.gateway.masking.text import TextStream, mask_text
from dabom.gateway.masking.values import mask_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dabom.gateway.masking.detect import Detector
    from dabom.gateway.masking.text import Found

_MAX_EVENT_BYTES = 16 * 2**20
_END = re.compile(rb"\n\r?\n|\r\r")
_OVER = ("response.completed", "response.failed", "response.incomplete", "error")
_PARTS = ("item_id", "output_index", "content_index", "summary_index")
_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
Place = tuple[str | int, ...]


class _Piece(NamedTuple):
    """A text inside an event: the mapping that holds it, under which name, and to which stream it belongs."""

    holder: dict[str, Any]
    name: str
    place: Place
    like: Callable[[str], dict[str, Any]]
    """An event like this one that holds nothing but a piece of this text."""


class EventMask:
    """Takes the bytes of a stream and gives the bytes that the client gets. An event is never cut.

    An event whose texts do not change is passed on as it came. What a text holds back goes out with the event
    that ends it, or before it: the one with the finish reason of its choice, `[DONE]`, an error, the end.
    """

    def __init__(self, detectors: Sequence[Detector], found: Found) -> None:
        self._detectors = detectors
        self._found = found
        self._rest = b""
        self._texts: dict[Place, tuple[TextStream, _Piece]] = {}

    def add(self, chunk: bytes) -> bytes:
        """What can be sent now."""
        *events, self._rest = _split(self._rest + chunk)
        if len(self._rest) > _MAX_EVENT_BYTES:
            raise UpstreamBroken(f"an event of more than {_MAX_EVENT_BYTES:,} bytes cannot be masked")
        return b"".join(map(self._event, events))

    def end(self) -> bytes:
        """The rest."""
        rest, self._rest = self._rest, b""
        return (self._event(rest) if rest else b"") + self._flush(())

    def _event(self, event: bytes) -> bytes:
        text = _data(event)
        if not text:
            return event  # a comment
        value: Any = None
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = msgspec.json.decode(text)
        if not isinstance(value, dict):
            return self._flush(()) + self._plain(event, text)
        pieces = list(_pieces(value))
        finished = set(_finished(value))
        texts = [piece.holder[piece.name] for piece in pieces]
        masked = [self._mask(piece, ends=piece.place[0] in finished) for piece in pieces]
        ended = _ended(value)
        before = b"" if ended is None else self._flush(ended)
        before += b"".join(self._flush((choice,)) for choice in sorted(finished))
        for piece in pieces:
            piece.holder[piece.name] = None  # has been looked at
        others = mask_value(value, self._detectors, self._found)
        for piece, given in zip(pieces, masked, strict=True):
            piece.holder[piece.name] = given
        if masked == texts and not others:
            return before + event
        return before + _written(event, value)

    def _plain(self, event: bytes, text: bytes) -> bytes:
        """An event whose data is no JSON object: `[DONE]`, or what no client expects."""
        line = text.decode("utf-8", "surrogateescape")
        masked = mask_text(line, self._detectors, self._found)
        return event if masked is line else sse.data_event(masked.encode("utf-8", "surrogateescape"))

    def _mask(self, piece: _Piece, *, ends: bool) -> str:
        """What may be given out of a piece now; all of it when its choice ends with this event."""
        stream, _ = self._texts.pop(piece.place, (None, None))
        if stream is None:
            code = piece.name == "arguments" or "arguments" in str(piece.place[0])
            stream = TextStream(self._detectors, self._found, code=code)
        given = stream.add(piece.holder[piece.name])
        if ends:
            return given + stream.end()
        self._texts[piece.place] = stream, piece
        return given

    def _flush(self, start: Place) -> bytes:
        """Events with what is held back by the texts whose place starts so; they have ended."""
        sent = []
        for place in [place for place in self._texts if place[: len(start)] == start]:
            stream, piece = self._texts.pop(place)
            if rest := stream.end():
                sent.append(sse.data_event(msgspec.json.encode(piece.like(rest))))
        return b"".join(sent)


def _split(text: bytes) -> list[bytes]:
    """Whole events with their ends, and last what is not yet whole."""
    events, start = [], 0
    for found in _END.finditer(text):
        events.append(text[start : found.end()])
        start = found.end()
    return [*events, text[start:]]


def _data(event: bytes) -> bytes:
    lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))


def _written(event: bytes, value: dict[str, Any]) -> bytes:
    """The event with another value; its other lines stay, such as `event: name`."""
    lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").rstrip(b"\n").split(b"\n")
    others = [line + b"\n" for line in lines if line and not line.startswith(b"data:")]
    return b"".join(others) + sse.data_event(msgspec.json.encode(value))


def _pieces(value: dict[str, Any]) -> Iterator[_Piece]:
    """The texts of an event that go on in later ones."""
    kind = value.get("type")
    if isinstance(kind, str) and kind.endswith(".delta") and isinstance(value.get("delta"), str):
        place = (kind.removesuffix(".delta"), *(str(value.get(name)) for name in _PARTS))
        yield _Piece(value, "delta", place, lambda text: {**value, "delta": text})
    choices = value.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            yield from _of_choice(value, choice)


def _of_choice(value: dict[str, Any], choice: dict[str, Any]) -> Iterator[_Piece]:
    number = str(choice.get("index", 0))

    def only(**inner: Any) -> dict[str, Any]:
        alone = {"index": choice.get("index", 0), **inner, "finish_reason": None}
        kept = {name: kept for name, kept in value.items() if name not in ("choices", "usage")}
        return {**kept, "choices": [alone]}

    if isinstance(choice.get("text"), str):
        yield _Piece(choice, "text", (number, "text"), lambda text: only(text=text))
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return
    for name in _TEXTS:
        if isinstance(delta.get(name), str):
            yield _Piece(delta, name, (number, name), partial(_renamed, only, name))
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("arguments"), str):
            at = call.get("index", 0)

            def rest(text: str, at: Any = at) -> dict[str, Any]:
                return only(delta={"tool_calls": [{"index": at, "function": {"arguments": text}}]})

            yield _Piece(function, "arguments", (number, f"arguments {at}"), rest)


def _renamed(only: Callable[..., dict[str, Any]], name: str, text: str) -> dict[str, Any]:
    return only(delta={name: text})


def _finished(value: dict[str, Any]) -> Iterator[str]:
    """The choices that end with this event."""
    choices = value.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("finish_reason") is not None:
            yield str(choice.get("index", 0))


def _ended(value: dict[str, Any]) -> Place | None:
    """What ends with an event that has no choices: one text of the Responses API, or all; None: nothing."""
    if value.get("choices"):
        return None
    kind = value.get("type")
    if not isinstance(kind, str) or kind in _OVER:
        return ()  # the usage at the end, an error
    if kind.endswith(".done"):
        return (kind.removesuffix(".done"), *(str(value.get(name)) for name in _PARTS))
    return None
