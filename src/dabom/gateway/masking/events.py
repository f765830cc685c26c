"""Masking of a stream of events: each choice and each call of a tool is one text that comes in pieces."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from dabom.errors import UpstreamBroken
from dabom.gateway import sse
from dabom.gateway.masking.notation import read, write
from dabom.gateway.masking.text import TextStream, mask_text
from dabom.gateway.masking.values import is_code, is_text, mask_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dabom.gateway.masking.detect import Detector
    from dabom.gateway.masking.text import Found

_MAX_EVENT_BYTES = 16 * 2**20
_END = re.compile(rb"\n\r?\n|\r\r")
_LONGEST_END = 3
_OVER = ("response.completed", "response.failed", "response.incomplete", "message_stop", "error")
_BLOCK = "content_block"
_NAME = re.compile(r"[a-z_.]+")
_PARTS = ("item_id", "output_index", "content_index", "summary_index")
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
        self._rest = bytearray()
        self._texts: dict[Place, tuple[TextStream, _Piece]] = {}

    def add(self, chunk: bytes) -> bytes:
        """What can be sent now."""
        events = self._split(chunk)
        if len(self._rest) > _MAX_EVENT_BYTES:
            raise UpstreamBroken(f"an event of more than {_MAX_EVENT_BYTES:,} bytes cannot be masked")
        return b"".join(map(self._event, events))

    def end(self) -> bytes:
        """The rest."""
        rest, self._rest = bytes(self._rest), bytearray()
        return (self._event(rest) if rest else b"") + self._flush(())

    def _split(self, chunk: bytes) -> list[bytes]:
        """Whole events with their ends; what is not yet whole is the rest. Each byte is looked at once."""
        seen = max(0, len(self._rest) - _LONGEST_END + 1)
        self._rest += chunk
        ends = [found.end() for found in _END.finditer(self._rest, seen)]
        events = [bytes(self._rest[start:end]) for start, end in pairwise([0, *ends])]
        if ends:
            del self._rest[: ends[-1]]
        return events

    def _event(self, event: bytes) -> bytes:
        text = _data(event)
        if not text:
            return event  # a comment
        value: Any = None
        with suppress(ValueError):
            value = read(text)
        if not isinstance(value, dict):
            is_end = text.strip() == b"[DONE]"
            return (self._flush(()) if is_end else b"") + self._plain(event, text)
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
            code = is_code(piece.name) or "arguments" in str(piece.place[0])
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
                value = piece.like(rest)
                kind = value.get("type")  # of an event that has a type, clients read the name too
                if isinstance(kind, str) and _NAME.fullmatch(kind):
                    sent.append(b"event: " + kind.encode() + b"\n")
                sent.append(sse.data_event(write(value)))
        return b"".join(sent)


def _data(event: bytes) -> bytes:
    lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))


def _written(event: bytes, value: dict[str, Any]) -> bytes:
    """The event with another value; its other lines stay, such as `event: name`."""
    lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").rstrip(b"\n").split(b"\n")
    others = [line + b"\n" for line in lines if line and not line.startswith(b"data:")]
    return b"".join(others) + sse.data_event(write(value))


def _pieces(value: dict[str, Any]) -> Iterator[_Piece]:
    """The texts of an event that go on in later ones."""
    kind, delta = value.get("type"), value.get("delta")
    if isinstance(kind, str) and kind.endswith(".delta") and isinstance(delta, str):
        place = (kind.removesuffix(".delta"), *(str(value.get(name)) for name in _PARTS))
        yield _Piece(value, "delta", place, partial(_put, value, "delta"))
    elif kind == "content_block_delta" and isinstance(delta, dict):
        yield from _texts(delta, (_BLOCK, str(value.get("index"))), partial(_put, value, "delta"))
    choices = value.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            yield from _of_choice(value, choice)


def _of_choice(value: dict[str, Any], choice: dict[str, Any]) -> Iterator[_Piece]:
    number = str(choice.get("index", 0))
    bare = {name: kept for name, kept in value.items() if name not in ("choices", "usage")}

    def only(name: str, inner: Any) -> dict[str, Any]:
        alone = {"index": choice.get("index", 0), name: inner, "finish_reason": None}
        return {**bare, "choices": [alone]}

    if isinstance(choice.get("text"), str):
        yield _Piece(choice, "text", (number, "text"), partial(only, "text"))
    if isinstance(choice.get("delta"), dict):
        yield from _texts(choice["delta"], (number,), partial(only, "delta"))


def _texts(holder: dict[str, Any], place: Place, around: Callable[[Any], dict[str, Any]]) -> Iterator[_Piece]:
    """All texts below `holder`, whatever it is called. `around` makes an event of what stands in its place.

    The name of a tool comes whole, and is none of them.
    """
    own = {"type": holder["type"]} if isinstance(holder.get("type"), str) else {}
    for name, inner in holder.items():
        if name == "name" or not is_text(name):
            continue
        at, put = (*place, name), partial(_around, around, own, name)
        if isinstance(inner, str):
            yield _Piece(holder, name, at, put)
        elif isinstance(inner, dict):
            yield from _texts(inner, at, put)
        elif isinstance(inner, list):
            for position, one in enumerate(inner):
                if isinstance(one, dict):
                    number = {"index": one["index"]} if "index" in one else {}
                    part = (*at, str(one.get("index", position)))
                    yield from _texts(one, part, partial(_part, put, number))


def _put(holder: dict[str, Any], name: str, inner: Any) -> dict[str, Any]:
    return {**holder, name: inner}


def _around(around: Callable[[Any], dict[str, Any]], own: dict[str, Any], name: str, inner: Any) -> Any:
    return around({**own, name: inner})


def _part(put: Callable[[Any], dict[str, Any]], number: dict[str, Any], inner: dict[str, Any]) -> Any:
    return put([{**number, **inner}])


def _finished(value: dict[str, Any]) -> Iterator[str]:
    """The choices that end with this event."""
    choices = value.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("finish_reason") is not None:
            yield str(choice.get("index", 0))


def _ended(value: dict[str, Any]) -> Place | None:
    """What ends with an event that has no choices: one text of the Responses API, or all; None: nothing."""
    kind = value.get("type")
    if value.get("choices"):
        return None
    if not isinstance(kind, str):
        over = value.get("usage") or value.get("error") or value.get("object") == "error"
        return () if over else None  # others may stand in the middle of a text, such as a progress
    if kind in _OVER:
        return ()
    if kind.endswith(".done"):
        return (kind.removesuffix(".done"), *(str(value.get(name)) for name in _PARTS))
    return (_BLOCK, str(value.get("index"))) if kind == "content_block_stop" else None
