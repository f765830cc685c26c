"""A body with a few spans replaced, against the plain way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dabom.gateway.splice import Edit, splice


@given(
    st.lists(st.binary(max_size=7), max_size=6),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.binary(max_size=4)), max_size=5),
)
def test_the_same_as_on_one_string(chunks: list[bytes], wanted: list[tuple[int, int, bytes]]) -> None:
    body = b"".join(chunks)
    edits = [Edit(min(at, len(body)), min(at + size, len(body)), text) for at, size, text in wanted]
    expected, position = b"", 0
    for edit in sorted(edits, key=lambda edit: (edit.start, -edit.end)):
        if edit.start >= position:
            expected += body[position : edit.start] + edit.text
            position = edit.end
    assert b"".join(splice(chunks, edits)) == expected + body[position:]


def test_nothing_is_copied() -> None:
    chunks = [bytearray(b"abcdef"), bytearray(b"ghijkl")]
    pieces = splice([memoryview(chunk) for chunk in chunks], [Edit(4, 8, b"-")])
    chunks[0][0], chunks[1][5] = ord("A"), ord("L")
    assert b"".join(pieces) == b"Abcd-ijkL"
