"""Finds what was done to an audit chain. Rows in, faults out: no database, and memory that does not grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from dabom.store.record import GENESIS_PREVIOUS, GENESIS_SEQ, Head, Row, digest, told

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FaultKind: TypeAlias = Literal[
    "changed", "removed", "reordered", "inserted", "replaced", "truncated", "broken", "anchor"
]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a chain; `seq` and `last` are the first and the last number concerned."""

    kind: FaultKind
    seq: int
    last: int
    message: str


class Verifier:
    """Takes the rows of a chain in the order of their numbers, from `start` on.

    `link` is the hash that the first row must follow; None trusts the row. `anchors` are hashes that somebody
    noted down, by number. After a fault the check goes on from the hash that is stored, so that one changed
    record is one fault and not as many as there are records behind it.
    """

    def __init__(
        self, start: int = GENESIS_SEQ, link: bytes | None = None, anchors: Mapping[int, bytes] | None = None
    ) -> None:
        self.records = 0
        self.lost = 0
        """Records that the chain itself says could not be written."""
        self.head: Head | None = None
        self._expected = start
        self._link = GENESIS_PREVIOUS if start == GENESIS_SEQ else link
        self._shift = 0
        self._anchors = dict(anchors or {})

    def feed(self, row: Row) -> Iterator[Fault]:
        """The faults that show at this row."""
        self.records += 1
        if row.seq < self._expected:
            yield Fault(
                "inserted", row.seq, row.seq, f"record {row.seq} stands before the first of the chain"
            )
            return
        missing = row.seq - self._expected
        if missing:
            yield _missing(self._expected, row.seq - 1)
        yield from self._judge(row, linked=bool(missing) or self._link is None or self._link == row.previous)
        noted = self._anchors.pop(row.seq, None)
        if noted is not None and noted != row.hash:
            yield Fault(
                "anchor",
                row.seq,
                row.seq,
                f"record {row.seq} has the hash {row.hash.hex()}, and {noted.hex()} was noted down: "
                "the chain was written anew",
            )
        self._expected, self._link = row.seq + 1, row.hash
        self.head = Head(row.seq, row.hash)

    def _judge(self, row: Row, *, linked: bool) -> Iterator[Fault]:
        said = told(row.record)
        genuine = digest(row.previous, row.record) == row.hash
        if not genuine or said is None:
            yield Fault(
                "changed", row.seq, row.seq, f"record {row.seq} was changed: its hash is that of another text"
            )
        elif said.seq != row.seq and not (linked and said.seq - row.seq == self._shift):
            yield Fault(
                "reordered",
                min(row.seq, said.seq),
                max(row.seq, said.seq),
                f"in place {row.seq} stands record {said.seq}: records were moved, inserted or removed",
            )
        elif not linked:
            yield Fault(
                "replaced",
                max(row.seq - 1, GENESIS_SEQ),
                row.seq,
                f"record {row.seq} does not continue record {row.seq - 1}: one of them was replaced"
                if row.seq > GENESIS_SEQ
                else f"record {row.seq} is not the beginning of a chain",
            )
        if genuine and said is not None:
            self._shift = said.seq - row.seq
            if said.kind == "gap":
                self.lost += said.lost
            elif said.kind == "broken":
                yield Fault(
                    "broken",
                    row.seq,
                    said.last,
                    f"record {row.seq} tells that record {said.last} was there no more, with the hash "
                    f"{said.hash[:64]}: the end had been removed or replaced",
                )

    def finish(self) -> Iterator[Fault]:
        """What shows only when there are no more rows: that the end is missing."""
        last = self._expected - 1
        if self.head is None:
            yield Fault("truncated", self._expected, self._expected, f"there is no record {self._expected}")
        for seq in sorted(seq for seq in self._anchors if seq > last):
            yield Fault(
                "truncated",
                last + 1,
                seq,
                f"record {seq} was noted down, and the chain ends with {last}: its end was removed",
            )
        for seq in sorted(seq for seq in self._anchors if seq <= last):
            yield Fault("anchor", seq, seq, f"record {seq} was noted down and is not there")


def _missing(first: int, last: int) -> Fault:
    what = f"record {first} was" if first == last else f"records {first} to {last} were"
    return Fault("removed", first, last, f"{what} removed")
