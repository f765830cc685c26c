"""The canonical form of an audit record, and the hash that ties it to the record before it.

A record is a JSON object whose keys are sorted, without spaces between its parts, in UTF-8. Its hash is
SHA-256 over the 32 bytes of the hash before it, then these bytes: any language recomputes it from an export.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

GENESIS_SEQ = 0
GENESIS_PREVIOUS = bytes(32)
"""What stands in place of a hash before the first record."""
HASH_BYTES = 32

_ENCODER = msgspec.json.Encoder(order="sorted")


class Row(NamedTuple):
    """A record as it is stored. `record` holds the canonical bytes; `seq` stands in them too."""

    seq: int
    previous: bytes
    hash: bytes
    record: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """The last record: what one notes down elsewhere, so that the loss of the newest records is found too."""

    seq: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash.hex()}"


class Told(msgspec.Struct, frozen=True):
    """What a check reads of a record: its number, its kind and how many others it says were lost.

    One of the kind `broken` has the number and the hash of a record that a writer did not find any more.
    """

    seq: int
    kind: str
    lost: int = 0
    last: int = 0
    hash: str = ""


_TOLD = msgspec.json.Decoder(Told)


def canonical(fields: Mapping[str, Any]) -> bytes:
    """The bytes that are hashed and stored."""
    return _ENCODER.encode(fields)


def digest(previous: bytes, record: bytes) -> bytes:
    """The hash of a record that follows one with the hash `previous`."""
    return hashlib.sha256(previous + record).digest()


def chained(fields: Mapping[str, Any], head: Head | None) -> Row:
    """The next row: `fields` and its number, after `head`."""
    seq, previous = (GENESIS_SEQ, GENESIS_PREVIOUS) if head is None else (head.seq + 1, head.hash)
    record = canonical({**fields, "seq": seq})
    return Row(seq, previous, digest(previous, record), record)


def told(record: bytes) -> Told | None:
    """What a record says of itself; None when it is no record."""
    try:
        return _TOLD.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
