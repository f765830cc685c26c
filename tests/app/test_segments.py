"""Buffers come back when nobody looks at them, and never while somebody does."""

from __future__ import annotations

from dabom.app.segments import Segments


def test_a_buffer_is_used_again_when_the_last_view_is_gone() -> None:
    segments = Segments(64, keep=4)
    first = segments.take()
    buffer, part = first.obj, first[:8]
    del first
    assert segments.take().obj is not buffer
    del part
    found = [segments.take() for _ in range(2)]
    assert any(view.obj is buffer for view in found)


def test_what_is_looked_at_keeps_its_bytes_and_its_size() -> None:
    segments = Segments(64, keep=1)
    held = segments.take()
    held[:4] = b"clip"
    for _ in range(10):
        segments.take()[:4] = b"else"
    assert (bytes(held[:4]), len(held)) == (b"clip", 64)


def test_no_more_than_the_limit_is_kept() -> None:
    segments = Segments(64, keep=2)
    held = [segments.take() for _ in range(5)]
    buffers = [view.obj for view in held]
    del held
    again = [segments.take() for _ in range(5)]
    assert sum(any(view.obj is buffer for buffer in buffers) for view in again) == 2
