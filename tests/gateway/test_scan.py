"""The incremental scan against a strict reading by the standard library: any text, cut anywhere."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import random
from typing import TYPE_CHECKING, NoReturn

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dabom.errors import BodyTooLarge, InvalidJson
from dabom.gateway import Limits
from dabom.gateway.facts import FactsReader
from dabom.gateway.items import ItemReader
from dabom.gateway.scan import DIGEST_BYTES, HEAD_BYTES, LONG_STRING, Scanner, Skeleton, decode

if TYPE_CHECKING:
    from collections.abc import Iterable

_RAW = msgspec.json.Decoder(msgspec.Raw)
_PIECES = (b"a", b"\\n", b"\\\\", b'\\"', b"\\u00e9", b"\\ud800", "é".encode(), "한".encode(), "😀".encode())
_BAD_PIECES = (b"\n", b"\x00", b"\\x", b"\\u12g4", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98", b'"')


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text.decode(), parse_constant=_refuse, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):
        return False
    return True


def _scan_in(chunks: Iterable[bytes]) -> Skeleton:
    scanner = Scanner()
    for chunk in chunks:
        scanner.feed(chunk)
    return scanner.finish()


def _accepts(chunks: Iterable[bytes]) -> bool:
    try:
        decode(_scan_in(chunks).text, _RAW)
    except InvalidJson:
        return False
    return True


def _cut(text: bytes, borders: Iterable[int]) -> list[bytes]:
    ends = sorted({border % (len(text) + 1) for border in borders} | {0, len(text)})
    return [text[a:b] for a, b in itertools.pairwise(ends)]


@st.composite
def _long_strings(draw: st.DrawFn, pieces: tuple[bytes, ...] = _PIECES) -> bytes:
    """A string of up to a few kilobytes, around and above the size from which it leaves the skeleton."""
    fill = draw(st.sampled_from((b"A", "가".encode(), b"\\u0041", b"\\\\", b"\\ud83d\\ude00")))
    parts = [draw(st.sampled_from(pieces)) for _ in range(draw(st.integers(0, 6)))]
    size = draw(st.sampled_from((0, 1, 300, LONG_STRING - 8, LONG_STRING, LONG_STRING + 1, 2500)))
    parts.insert(draw(st.integers(0, len(parts))), fill * (size // len(fill)))
    return b'"' + b"".join(parts) + b'"'


@st.composite
def _texts(draw: st.DrawFn) -> bytes:
    """Mostly well-formed JSON of nested values with odd spacing."""
    leaf = st.one_of(
        _long_strings(),
        st.sampled_from((b"1e5", b"-0", b"12345678901234567890123", b"0.10", b"1E+400", b"true", b"null")),
        st.sampled_from((b"NaN", b"01", b"1.", b"-", b"tru", b"Infinity", b"'a'", b"")),
    )
    space = st.sampled_from((b"", b"", b" ", b"\n\t", b"\r\n"))
    key = st.one_of(st.sampled_from((b'"id"', b'"body"', b'"a\\u0062"')), _long_strings())

    def nest(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
        pair = st.tuples(space, key, space, inner, space).map(
            lambda t: t[0] + t[1] + t[2] + b":" + t[3] + t[4]
        )
        lists = st.lists(inner, max_size=4).map(lambda values: b"[" + b",".join(values) + b"]")
        return st.one_of(lists, st.lists(pair, max_size=4).map(lambda pairs: b"{" + b",".join(pairs) + b"}"))

    return draw(space) + draw(st.recursive(leaf, nest, max_leaves=6)) + draw(space)


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    """A text with a few bytes lost, doubled or put in."""
    text = bytearray(draw(_texts()))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        lost = draw(st.integers(0, 2))
        text[at : at + lost] = draw(st.sampled_from((*_PIECES, *_BAD_PIECES, b"", b"{", b"]", b",", b":")))
    return bytes(text)


_BORDERS = st.lists(st.integers(0, 5000), max_size=8)


@settings(max_examples=200, deadline=None)
@given(_damaged(), _BORDERS)
@example(b'{"a":"\\ud800"}', [])
@example(b'["' + b"A" * 1030 + b"\\ud83d" + b'"]', [1034])
@example(b'["' + b"A" * 1030 + b"\xed\xa0\x80" + b'"]', [1034])
@example(b"[1" + b"0" * 5000 + b",}", [])
@example(b"[1" + b"0" * 5000 + b"]", [])
@example(b"\x00", [])
@example(b"[\x00]\x00", [])
@example('{"a":1}'.encode("utf-16-le"), [])
@example('{"a":1}'.encode("utf-8-sig"), [])
@example(b"", [])
@example(b" ", [])
@example(b"[1] [2]", [])
@example(b"[1]\x0c", [])
@example(b'{"a":1e400}', [])
@example(b'{"a":1,"a":2}', [3])
@example(b'["\\ud83d\\ude00\\udc00"]', [5, 9])
def test_accepts_exactly_what_a_strict_parser_accepts(text: bytes, borders: list[int]) -> None:
    assert _accepts(_cut(text, borders)) == _is_json(text)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40), _BORDERS)
def test_accepts_exactly_the_same_of_random_bytes(text: bytes, borders: list[int]) -> None:
    for whole in (text, b'["' + text + b'"]', b'["' + b"A" * 2000 + text + b'"]'):
        assert _accepts(_cut(whole, borders)) == _is_json(whole)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from((*_PIECES, *_BAD_PIECES)), min_size=1, max_size=4))
def test_a_long_string_may_be_cut_at_every_border(pieces: list[bytes]) -> None:
    middle = b"".join(pieces)
    text = b'{"k":"' + b"A" * 1100 + middle + b"B" * 20 + b'","z":[1]}'
    expected = _is_json(text)
    first = text.index(b"A" * 1100) + 1095
    for border in range(first, first + len(middle) + 12):
        assert _accepts([text[:border], text[border:]]) == expected
        assert _accepts([text[:border], text[border : border + 1], text[border + 1 :]]) == expected


def test_a_text_may_come_byte_by_byte() -> None:
    text = json.dumps({"a": '한\u2028"\\' * 400, "b": ["x" * 1500, {"c": "é" * 700}]}).encode()
    skeleton = _scan_in(text[i : i + 1] for i in range(len(text)))
    assert skeleton.size == len(text)
    assert len(skeleton.strings) == 3
    for string in skeleton.strings.values():
        assert text[string.start - 1] == text[string.end] == 0x22
        assert string.head == text[string.start : string.end][:HEAD_BYTES]


@pytest.mark.parametrize("control", [b"\x00", b"\n", b"\x1f", b"\x7f", b"\x80", b"\xff", b"\\", b"\\q"])
@pytest.mark.parametrize("place", [0, 700_000, 1_048_575])
def test_one_bad_byte_inside_megabytes_of_base64_is_found(control: bytes, place: int) -> None:
    clip = base64.b64encode(random.Random(1).randbytes(786_432))
    text = b'{"data":"' + clip[:place] + control + clip[place:] + b'"}'
    chunks = [text[i : i + 65_536] for i in range(0, len(text), 65_536)]
    assert _accepts(chunks) == _is_json(text) == (control == b"\x7f")


def test_a_wrong_string_is_refused_as_soon_as_it_is_seen() -> None:
    scanner = Scanner()
    scanner.feed(b'{"a":"' + b"A" * 2000)
    with pytest.raises(InvalidJson, match="byte 6"):
        scanner.feed(b"\n" + b"A" * 2000)


def test_a_cut_string_is_told_with_its_size() -> None:
    with pytest.raises(InvalidJson, match="2,006 bytes"):
        _scan_in([b'{"a":"' + b"A" * 2000])


def test_a_string_over_the_limit_is_refused_while_it_arrives() -> None:
    scanner = Scanner(4096)
    scanner.feed(b'{"a":"' + b"A" * 4000)
    with pytest.raises(BodyTooLarge, match="4,096"):
        scanner.feed(b"A" * 100)


def test_digest_and_head_do_not_depend_on_the_chunks() -> None:
    inside = base64.b64encode(random.Random(2).randbytes(150_000))
    text = b'{"d":"' + inside + b'"}'
    for step in (997, 65_536, len(text)):
        (string,) = _scan_in(text[i : i + step] for i in range(0, len(text), step)).strings.values()
        assert string.digest == hashlib.sha256(inside[:DIGEST_BYTES]).hexdigest()[:16]
        assert string.head == inside[:HEAD_BYTES]


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    for depth in (10_000, 200_000):
        with pytest.raises(InvalidJson, match="deep"):
            decode(b"[" * depth + b"]" * depth, _RAW)


def test_the_mark_of_a_long_string_cannot_be_guessed_by_a_client() -> None:
    text = b'{"a":"' + b"A" * 2000 + b'"}'
    assert not set(_scan_in([text, b""]).strings) & set(_scan_in([text]).strings)


@st.composite
def _batches(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A JSON batch and the very bytes of the body of each of its items."""
    space = st.sampled_from((b"", b" ", b"\n  ", b"\t"))
    field = st.one_of(
        _long_strings(),
        st.sampled_from(
            (b"1", b"[{}, {}]", b'{"id":1}', b"1e5", b"12345678901234567890", b'"\\ud800"', b'"{}"')
        ),
    )
    bodies, items = list[bytes](), list[bytes]()
    for number in range(draw(st.integers(1, 5))):
        names: list[bytes] = draw(
            st.lists(st.sampled_from((b'"a"', b'"a"', b'"messages"', b'"id"')), max_size=3)
        )
        pairs = [draw(space) + name + b":" + draw(space) + draw(field) for name in names]
        body = b"{" + b",".join(pairs) + draw(space) + b"}"
        if number and draw(st.integers(0, 1)):
            body = bodies[0]
        fields = [b'"id":%d' % number, b'"body":' + draw(space) + body, b'"note":' + draw(field)]
        items.append(draw(space) + b"{" + (draw(space) + b",").join(draw(st.permutations(fields))) + b"}")
        bodies.append(body)
    around = draw(
        st.sampled_from((b"{", b'{"x":[{"id":0,"body":{}}],', b'{"items":[],"y":"' + b"B" * 1500 + b'",'))
    )
    return around + draw(space) + b'"items":[' + b",".join(items) + draw(space) + b"]}", bodies


@settings(max_examples=120, deadline=None)
@given(_batches(), _BORDERS)
def test_the_bodies_of_items_are_the_very_bytes_that_came(
    batch: tuple[bytes, list[bytes]], borders: list[int]
) -> None:
    text, bodies = batch
    whole = bytearray(text)
    items = ItemReader(FactsReader(), Limits()).all(_scan_in(_cut(text, borders)), whole)
    assert [bytes(item.body) for item in items] == bodies
    assert all(item.body.obj is whole for item in items)  # views into the one copy
    assert [item.id for item in items] == [b"%d" % number for number in range(len(bodies))]


@settings(max_examples=100, deadline=None)
@given(_batches())
def test_the_body_of_a_line_is_the_very_bytes_that_came(batch: tuple[bytes, list[bytes]]) -> None:
    _, bodies = batch
    for number, body in enumerate(bodies):
        line = b'{"body":' + body + b',"id":"%d"}' % number
        item = ItemReader(FactsReader(), Limits()).one(line, number, set())
        assert item.flaw is None
        assert bytes(item.body) == body


def test_locate_maps_every_place_outside_of_marks() -> None:
    text = b'{"a":"' + b"x" * 1500 + b'","b":"' + b"y" * 3000 + b'","c":{"d":1}}'
    skeleton = _scan_in([text])
    for word in (b'"a"', b'"b"', b'"c"', b'{"d":1}', b"}}"):
        assert skeleton.locate(skeleton.text.index(word)) == text.index(word)
    assert skeleton.locate(len(skeleton.text)) == len(text)
