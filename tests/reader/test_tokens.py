from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dabom.reader import tokens


@given(st.text())
def test_pieces_join_to_the_text(text: str) -> None:
    pieces = tokens.split(text)
    assert "".join(pieces) == text
    assert tokens.count(text) == len(pieces)
    assert all(pieces)


def test_the_documented_rule() -> None:
    assert tokens.split("Seoul 첫눈이 2026년, ok") == ["Seoul", " 첫눈", "이", " 202", "6", "년", ",", " ok"]
    assert tokens.split("subtitles") == ["subtit", "les"]
