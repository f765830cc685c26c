from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dabom.client.sse import Event, EventReader
from dabom.errors import AnswerBroken


def _read(*pieces: bytes) -> list[Event]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)]


@pytest.mark.parametrize(
    ("wire", "events"),
    [
        (b"data: a\n\n", [Event("a")]),
        (b"data:a\n\ndata:  b\n\n", [Event("a"), Event(" b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Event("a")]),
        (b": ping\n\n: ping\n\ndata: a\n\n", [Event("a")]),
        (b"data: a\ndata: b\ndata\n\n", [Event("a\nb\n")]),
        (b"event: error\ndata: {}\n\ndata: x\n\n", [Event("{}", "error"), Event("x")]),
        (
            b"id: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n",
            [Event("a", id="7"), Event("b", id="7"), Event("c")],
        ),
        (b"id: 1\0\ndata: a\n\n", [Event("a")]),
        (b"event: x\n\ndata: a\n\n", [Event("a")]),
        (b"retry: 5\nunknown: 1\ndata: a: b\n\n", [Event("a: b")]),
        (b"data\n\n", [Event("")]),
        (b"data: cut\n", []),
        (b"data: cut", []),
        ("data: 다봄\n\n".encode(), [Event("다봄")]),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_reads_what_the_standard_says(wire: bytes, events: list[Event], end: bytes) -> None:
    wire = wire.replace(b"\n", end)
    assert _read(wire) == events
    assert _read(*(wire[i : i + 1] for i in range(len(wire)))) == events


_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no bug
_lines = st.lists(
    st.one_of(
        st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=12).map(
            lambda t: f"data: {t}"
        ),
        st.sampled_from(["", "", ": ping", "event: error", "data", "id: 3", "보통"]),
    ),
    max_size=30,
)


@_UNTIMED
@given(_lines, st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=30, max_size=30), st.data())
def test_borders_of_pieces_change_nothing(lines: list[str], ends: list[str], data: st.DataObject) -> None:
    wire = "".join(line + end for line, end in zip(lines, ends, strict=False)).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    pieces = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert _read(*pieces) == _read(wire)


@_UNTIMED
@given(_lines)
def test_kind_of_line_end_changes_nothing(lines: list[str]) -> None:
    ends = [b"\n", b"\r\n", b"\r"]
    one, two, three = (_read(b"".join(line.encode() + end for line in lines)) for end in ends)
    assert one == two == three


def test_an_endless_event_is_refused() -> None:
    with pytest.raises(AnswerBroken, match="over 100 bytes"):
        EventReader(max_event_bytes=100).feed(b"x" * 101)
    reader = EventReader(max_event_bytes=100)
    for _ in range(10):
        reader.feed(b"data: 0123456789\n")
    with pytest.raises(AnswerBroken, match="over 100 bytes"):
        reader.feed(b"data: 0\n")
