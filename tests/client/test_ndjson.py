from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dabom.client.ndjson import LineReader
from dabom.errors import AnswerBroken

_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no bug
_values = st.lists(
    st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.integers(-5, 5), max_size=3)
)


@_UNTIMED
@given(_values, st.sampled_from([b"\n", b"\r\n", b"\n\n"]), st.booleans(), st.data())
def test_borders_of_pieces_change_nothing(
    values: list[dict[str, object]], end: bytes, last_end: bool, data: st.DataObject
) -> None:
    wire = end.join(map(msgspec.json.encode, values)) + (end if last_end else b"")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    reader = LineReader()
    lines = [
        line
        for start, stop in zip([0, *cuts], [*cuts, len(wire)], strict=True)
        for line in reader.feed(wire[start:stop])
    ]
    assert [msgspec.json.decode(line) for line in [*lines, *reader.end()]] == values


def test_an_endless_line_is_refused() -> None:
    with pytest.raises(AnswerBroken, match="over 10 bytes"):
        LineReader(max_line_bytes=10).feed(b"x" * 11)
