"""Priorities: what the header may ask for, and what holds without it."""

from __future__ import annotations

import pytest

from dabom.errors import ClientError
from dabom.gateway.admission import Priority, read_priority

_REALTIME, _NORMAL, _BATCH = Priority


@pytest.mark.parametrize(
    ("word", "own", "items", "expected"),
    [
        (None, None, False, _NORMAL),
        (None, None, True, _BATCH),
        (None, "realtime", False, _REALTIME),
        (None, "realtime", True, _BATCH),
        (None, "batch", False, _BATCH),
        (b"realtime", None, False, _REALTIME),
        (b" Realtime ", None, True, _REALTIME),
        (b"realtime", "normal", False, _NORMAL),
        (b"realtime", "batch", True, _BATCH),
        (b"batch", "realtime", False, _BATCH),
        (b"normal", None, True, _NORMAL),
    ],
)
def test_header_and_key(word: bytes | None, own: str | None, items: bool, expected: Priority) -> None:
    headers = [] if word is None else [(b"x-dabom-priority", word)]
    assert read_priority(headers, own, items=items) is expected


def test_another_word_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ClientError, match="is high; send realtime, normal or batch"):
        read_priority([(b"x-dabom-priority", b"high")])
