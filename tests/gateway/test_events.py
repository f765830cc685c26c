"""Server-sent events as bytes: borders, errors and the end, whatever the pieces."""

from __future__ import annotations

import itertools
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dabom.client.sse import EventReader
from dabom.errors import IdleTimeout
from dabom.gateway import sse

ENDS = ["\n\n", "\r\n\r\n", "\r\r"]
_LINES = st.sampled_from(
    [
        "data: {}",
        'data: {"choices":[{"delta":{"content":"한글 🎬"}}]}',
        "data:x",
        "data",
        "event: ping",
        ": comment",
        "id: 7",
        "retry: 10",
        "data: [DONE] not",
        'data: text with data: [DONE] and data: {"error": {} inside',
    ]
)
_ERROR = 'data: {"error": {"message": "EngineCore died", "code": 500}}'
_DONE = "data: [DONE]"


@st.composite
def _streams(draw: st.DrawFn) -> bytes:
    """A stream of whole events, with one spelling of line ends."""
    end = draw(st.sampled_from(ENDS))
    line_end = end[: len(end) // 2]
    events = draw(st.lists(st.lists(_LINES, min_size=1, max_size=3), max_size=8))
    return "".join(line_end.join(lines) + end for lines in events).encode()


def _pieces(text: bytes, borders: list[int]) -> list[bytes]:
    cuts = sorted({0, len(text), *(border % (len(text) + 1) for border in borders)})
    return [text[a:b] for a, b in itertools.pairwise(cuts)]


def _at_border(sent: bytes) -> bool:
    return not sent or any(sent.endswith(end.encode()) for end in ENDS)


@settings(max_examples=300, deadline=None)
@given(_streams(), st.lists(st.integers(0, 10_000), max_size=20))
def test_nothing_is_lost_and_events_are_sent_whole(text: bytes, borders: list[int]) -> None:
    events, sent = sse.Events(), b""
    for piece in _pieces(text, borders):
        sent += events.whole(piece)
        assert text.startswith(sent)
        assert events.between
        assert _at_border(sent)
        assert not events.failed
        assert not events.done
    assert sent + events.rest() == text


@settings(max_examples=200, deadline=None)
@given(_streams(), st.lists(st.integers(0, 10_000), max_size=20), st.sampled_from(ENDS))
def test_the_end_is_seen_at_any_border(text: bytes, borders: list[int], end: str) -> None:
    text += f"{_DONE}{end}".encode()
    events, sent = sse.Events(), b""
    for piece in _pieces(text, borders):
        sent += events.whole(piece)
    assert events.done
    assert sent + events.rest() == text


@settings(max_examples=200, deadline=None)
@given(_streams(), st.lists(st.integers(0, 10_000), max_size=20), st.sampled_from(ENDS))
def test_an_end_after_an_error_is_withheld_at_any_border(text: bytes, borders: list[int], end: str) -> None:
    failed = text + f"{_ERROR}{end}".encode()
    events, sent = sse.Events(), b""
    for piece in _pieces(failed + f"{_DONE}{end}".encode(), borders):
        sent += events.whole(piece)
    assert events.failed
    assert sent + events.rest() == failed


@pytest.mark.parametrize("name", ["event: error\n", "id: 1\n", ""])
@pytest.mark.parametrize("data", ['data: {"error"', 'data:{"error"', 'data: { "error"', 'data:  {"error"'])
def test_an_error_is_known_in_every_spelling(name: str, data: str) -> None:
    events = sse.Events()
    events.whole(f'{name}{data}: {{"message": "no"}}}}\n\n'.encode())
    assert events.failed
    assert events.whole(b"data:[DONE]\n\n") == b""


def test_an_event_too_long_to_hold_is_passed_on_in_pieces() -> None:
    events = sse.Events()
    long = b"data: " + b"x" * 200_000
    assert events.whole(long[:30_000]) == b""
    assert events.between
    sent = events.whole(long[30_000:])
    assert sent == long
    assert not events.between  # nothing else may be sent now
    assert events.whole(b"yy") == b"yy"
    assert not events.between
    assert events.whole(b"\n\ndata: 1") == b"\n\n"
    assert events.between
    assert events.whole(b"\n\n") == b"data: 1\n\n"


def test_an_event_too_long_to_hold_ends_at_a_border_between_two_pieces() -> None:
    events = sse.Events()
    sent = events.whole(b"data: " + b"x" * 200_000 + b"\n")
    sent += events.whole(b"\n")
    assert events.between, "the blank line came in two pieces"
    assert sent == b"data: " + b"x" * 200_000 + b"\n\n"


def test_a_stream_without_a_last_blank_line_is_passed_on_as_it_was() -> None:
    events = sse.Events()
    assert events.whole(b"data: 1\n\ndata: 2\n") == b"data: 1\n\n"
    assert events.rest() == b"data: 2\n"
    assert events.rest() == b""


def test_an_error_event_is_one_event_for_every_parser() -> None:
    text = sse.error_event(IdleTimeout("침묵 for 1 s\n\nand more"))
    (event,) = EventReader().feed(text)
    assert msgspec.json.decode(event.data)["error"]["code"] == "idle_timeout"
    assert re.fullmatch(rb"data: [^\r\n]+\n\n", text)


def test_a_comment_is_no_event() -> None:
    reader = EventReader()
    assert reader.feed(b"data: 1\n\n" + sse.COMMENT + b"data: 2\n\n")[1].data == "2"
