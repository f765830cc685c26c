from __future__ import annotations

import hashlib
import json

from dabom.store.record import GENESIS_PREVIOUS, Head, canonical, chained, digest, told


def test_a_record_is_sorted_json_without_spaces() -> None:
    fields = {"time": "2026-01-01", "code": "", "media": [{"width": 2, "kind": "image"}], "model": "큐웬\x00"}
    expected = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert canonical(fields) == expected
    assert canonical(dict(reversed(fields.items()))) == expected


def test_anybody_can_recompute_the_hash() -> None:
    first = chained({"kind": "genesis"}, None)
    second = chained({"kind": "request", "status": 200}, Head(first.seq, first.hash))
    assert first.previous == GENESIS_PREVIOUS == b"\0" * 32
    assert second.record == b'{"kind":"request","seq":1,"status":200}'
    assert (
        second.hash
        == hashlib.sha256(first.hash + second.record).digest()
        == digest(first.hash, second.record)
    )


def test_a_head_is_shown_as_an_anchor_is_given() -> None:
    assert str(Head(7, b"\xab" * 32)) == "7:" + "ab" * 32


def test_what_is_no_record_tells_nothing() -> None:
    assert told(b'{"seq":"1","kind":"request"}') is None
    assert told(b"\xff") is None
    assert told(b"[" * 100_000) is None
