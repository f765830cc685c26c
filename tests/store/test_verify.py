"""Every way to falsify a chain, on plain rows: what the check finds and which record it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dabom.store import Fault, Head, Row, Verifier
from dabom.store.record import chained, digest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LAST = 12


def _chain(first: int = 0, last: int = _LAST, text: str = "r") -> list[Row]:
    rows, head = list[Row](), None
    for number in range(last + 1):
        fields = {"kind": "request", "request_id": f"{text}{number}"} if number else {"kind": "genesis"}
        row = chained(fields, head)
        head = Head(row.seq, row.hash)
        rows.append(row)
    return rows[first:]


def _check(rows: Sequence[Row], **given: object) -> list[Fault]:
    verifier = Verifier(**given)  # type: ignore[arg-type]  # of each test what it needs
    faults = [fault for row in sorted(rows, key=lambda row: row.seq) for fault in verifier.feed(row)]
    return [*faults, *verifier.finish()]


def _concern(faults: Sequence[Fault], seq: int) -> bool:
    return any(fault.seq <= seq <= fault.last for fault in faults)


def _rehash(row: Row, record: bytes) -> Row:
    return row._replace(record=record, hash=digest(row.previous, record))


def _change(rows: list[Row], at: int) -> None:
    rows[at] = rows[at]._replace(record=rows[at].record.replace(b"kind", b"kinD"))


def _rewrite(rows: list[Row], at: int) -> None:
    rows[at] = _rehash(rows[at], rows[at].record.replace(b"r", b"R"))


def _change_hash(rows: list[Row], at: int) -> None:
    rows[at] = rows[at]._replace(hash=bytes(32))


def _change_link(rows: list[Row], at: int) -> None:
    rows[at] = rows[at]._replace(previous=b"\1" * 32)


def _relink(rows: list[Row], at: int) -> None:
    rows[at] = rows[at]._replace(previous=b"\1" * 32, hash=digest(b"\1" * 32, rows[at].record))


def _remove(rows: list[Row], at: int) -> None:
    del rows[at]


def _close_up(rows: list[Row], at: int) -> None:
    rows[at:] = [row._replace(seq=row.seq - 1) for row in rows[at + 1 :]]


def _swap(rows: list[Row], at: int) -> None:
    one, two = rows[at], rows[at - 1]
    rows[at - 1], rows[at] = one._replace(seq=two.seq), two._replace(seq=one.seq)


def _swap_contents(rows: list[Row], at: int) -> None:
    one, two = rows[at], rows[at - 1]
    rows[at - 1], rows[at] = two._replace(record=one.record), one._replace(record=two.record)


def _copy_over(rows: list[Row], at: int) -> None:
    rows[at] = rows[at - 1]._replace(seq=rows[at].seq)


def _insert(rows: list[Row], at: int) -> None:
    forged = chained({"kind": "request", "request_id": "forged"}, Head(at - 1, rows[at - 1].hash))
    rows[at:] = [forged, *(row._replace(seq=row.seq + 1) for row in rows[at:])]


_INSIDE: list[Callable[[list[Row], int], None]] = [
    _change,
    _rewrite,
    _change_hash,
    _change_link,
    _relink,
    _remove,
    _close_up,
    _swap,
    _swap_contents,
    _copy_over,
    _insert,
]


@pytest.mark.parametrize("at", [1, 2, 6, _LAST - 1])
@pytest.mark.parametrize("falsify", _INSIDE)
def test_what_is_done_inside_a_chain_is_found_and_named(
    falsify: Callable[[list[Row], int], None], at: int
) -> None:
    rows = _chain()
    falsify(rows, at)
    faults = _check(rows)
    assert faults
    assert _concern(faults, at)
    assert len(faults) <= 5, "one deed is not as many faults as there are records"
    assert all(at - 2 <= fault.seq and fault.last <= at + 2 for fault in faults)


def test_a_whole_chain_has_no_fault() -> None:
    assert _check(_chain()) == []
    assert _check(_chain(5), start=5) == []
    assert _check(_chain(5), start=5, link=_chain()[4].hash) == []


def test_a_changed_record_is_one_fault() -> None:
    rows = _chain()
    _change(rows, 4)
    (fault,) = _check(rows)
    assert (fault.kind, fault.seq, fault.last) == ("changed", 4, 4)


def test_removed_records_are_told_with_their_numbers() -> None:
    rows = _chain()
    del rows[3:7]
    (fault,) = _check(rows)
    assert (fault.kind, fault.seq, fault.last) == ("removed", 3, 6)
    assert fault.message == "records 3 to 6 were removed"


def test_a_chain_without_its_beginning_is_broken() -> None:
    assert [fault.kind for fault in _check(_chain(1))] == ["removed"]
    other = _chain()[3]._replace(seq=0)
    assert _check([other, *_chain(1)])
    beginning = _chain()[0]._replace(seq=-1)
    assert [fault.kind for fault in _check([beginning, *_chain()])] == ["inserted"]


def test_an_empty_chain_is_broken() -> None:
    assert [fault.kind for fault in _check([])] == ["truncated"]


def test_a_cut_end_shows_by_an_anchor_alone() -> None:
    whole = _chain()
    noted = {_LAST: whole[-1].hash}
    assert _check(whole, anchors=noted) == []
    assert _check(whole[:-2]) == []
    (fault,) = _check(whole[:-2], anchors=noted)
    assert (fault.kind, fault.seq, fault.last) == ("truncated", _LAST - 1, _LAST)


def test_a_chain_that_was_written_anew_shows_by_an_anchor_alone() -> None:
    forged, noted = _chain(text="f"), {7: _chain()[7].hash, 3: _chain()[3].hash}
    assert _check(forged) == []
    assert [(fault.kind, fault.seq) for fault in _check(forged, anchors=noted)] == [
        ("anchor", 3),
        ("anchor", 7),
    ]


def test_the_record_of_an_anchor_that_is_gone_is_told() -> None:
    rows = _chain()
    noted = {4: rows[4].hash}
    del rows[4]
    assert [fault.kind for fault in _check(rows, anchors=noted)] == ["removed", "anchor"]


def test_a_part_must_continue_what_was_before_it() -> None:
    assert [fault.kind for fault in _check(_chain(5), start=5, link=bytes(32))] == ["replaced"]


def test_gaps_that_the_gateway_told_are_added_up() -> None:
    first = chained({"kind": "genesis"}, None)
    second = chained({"kind": "gap", "lost": 17, "refused": 2}, Head(0, first.hash))
    verifier = Verifier()
    assert [list(verifier.feed(row)) for row in (first, second)] == [[], []]
    assert verifier.lost == 17
