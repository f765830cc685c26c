"""Resident registration numbers in text, whole and in pieces."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dabom.gateway.masking import Finding, ResidentNumber, TextStream, fold, mask_text

if TYPE_CHECKING:
    from collections.abc import Iterator

DETECTORS = [ResidentNumber()]
FOUND: list[str] = ["주민등록번호는 900101-1123459입니다", "번호 900101-1123459"]


def masked(text: str, *, code: bool = False) -> str:
    return mask_text(text, DETECTORS, lambda _: None, code=code)


def in_pieces(pieces: list[str]) -> list[str]:
    stream = TextStream(DETECTORS, lambda _: None)
    return [*(stream.add(piece) for piece in pieces), stream.end()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("주민등록번호는 900101-1123459입니다", "주민등록번호는 900101-1******입니다"),
        ("900101-1123459", "900101-1******"),
        ("900101 - 1123459.", "900101 - 1******."),
        ("（９００１０１－１１２３４５９）", "（９００１０１－１******）"),
        ("900101–1123459", "900101–1******"),
        ("٩٠٠١٠١-١١٢٣٤٥٩", "٩٠٠١٠١-١******"),
        ("𝟗𝟎𝟎𝟏𝟎𝟏−𝟏𝟏𝟐𝟑𝟒𝟓𝟗", "𝟗𝟎𝟎𝟏𝟎𝟏−𝟏******"),
        ("201231-3999999 is of 2020", "201231-3****** is of 2020"),
        ("외국인등록번호 9001015123456", "외국인등록번호 9001015******"),
        ("9001011123459", "9001011******"),  # its check digit is right
        ("둘: 900101-1123459, 850505-2000000", "둘: 900101-1******, 850505-2******"),
    ],
)
def test_numbers_are_masked_behind_the_date(text: str, expected: str) -> None:
    assert masked(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "안녕하세요",
        "900231-1123459",  # no such day
        "901301-1123459",
        "010229-3123456",  # 2001 was no leap year
        "2900101-1123459",
        "900101-11234590",
        "자산총계 9001011123456 원",  # 13 digits, a date, but no label and no check digit
        "900101--1123459",
        "900101\n1123459",
        "1.900101-112345",
    ],
)
def test_other_numbers_are_left_alone(text: str) -> None:
    assert masked(text) is text


def test_folding_keeps_the_length() -> None:
    every = "".join(chr(code) for code in range(0x20, 0x3000)) + "９－ーﬁ㎏①가힣漢"
    assert len(fold(every)) == len(every)


def test_in_the_arguments_of_a_tool_a_number_stays_a_number() -> None:
    assert masked('{"주민번호": 9001011123459}', code=True) == '{"주민번호": 9001011000000}'
    assert masked('{"주민번호": "900101-1123459"}', code=True) == '{"주민번호": "900101-1******"}'
    assert masked('{"주민번호": "9001011123459"}', code=True) == '{"주민번호": "9001011******"}'


@pytest.mark.parametrize("text", FOUND)
def test_every_way_to_cut_a_text_in_three_gives_the_same(text: str) -> None:
    for first, second in itertools.combinations(range(len(text) + 1), 2):
        pieces = [text[:first], text[first:second], text[second:]]
        assert "".join(in_pieces(pieces)) == masked(text), pieces


def test_character_by_character() -> None:
    text = "주민등록번호 900101-1123459, 전화 010-1234-5678, 1,234,567원."
    assert "".join(in_pieces(list(text))) == masked(text)


@given(st.lists(st.text(st.sampled_from("019-– 번호９"), max_size=9), max_size=12))
def test_pieces_give_what_the_whole_gives(pieces: list[str]) -> None:
    assert "".join(in_pieces(pieces)) == masked("".join(pieces))


@given(st.lists(st.text(st.sampled_from("0129- 번"), min_size=1, max_size=6), min_size=1, max_size=20))
def test_never_more_is_held_back_than_the_longest_finding(pieces: list[str]) -> None:
    stream, came, gone = TextStream(DETECTORS, lambda _: None), 0, 0
    for piece in pieces:
        came += len(piece)
        gone += len(stream.add(piece))
        assert came - gone <= ResidentNumber.longest


def test_words_wait_for_nothing() -> None:
    assert in_pieces(["안녕", "하세요 ", "2026년"]) == ["안녕", "하세요 ", "2026년", ""]
    assert in_pieces(["오늘은 12"]) == ["오늘은 ", "12"]


def test_a_label_in_an_earlier_piece_counts() -> None:
    assert "".join(in_pieces(["주민", "등록번호: ", "90010111", "23456", " 입니다"])) == (
        "주민등록번호: 9001011****** 입니다"
    )


class Names:
    """Another detector, as a plug: a name of three characters behind 성명."""

    kind = "name"
    longest = 6

    def find(self, text: str) -> Iterator[Finding]:
        start = text.find("성명 ")
        if start >= 0 and len(text) >= start + 6:
            yield Finding(start, start + 6, (start + 4, start + 6))

    def pending(self, text: str) -> int:
        start = text.rfind("성", max(0, len(text) - 5))
        return len(text) if start < 0 else start


def test_detectors_are_a_plug() -> None:
    kinds: list[str] = []
    text = "성명 홍길동, 900101-1123459"
    stream = TextStream([Names(), *DETECTORS], kinds.append)
    assert "".join(map(stream.add, text)) + stream.end() == "성명 홍**, 900101-1******"
    assert kinds == ["name", "resident_number"]


class Greedy:
    """A detector that would hold everything."""

    kind = "greedy"
    longest = 4

    def find(self, text: str) -> Iterator[Finding]:
        return iter(())

    def pending(self, text: str) -> int:
        return 0


def test_a_detector_cannot_hold_a_stream_for_ever() -> None:
    stream = TextStream([Greedy()], lambda _: None)
    assert "".join(stream.add("x") for _ in range(100)) == "x" * 96
