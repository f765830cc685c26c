"""glibc's allocator, told to give large blocks back."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MMAP_BYTES = 4 * 2**20
_TRIM_BYTES = 64 * 2**20


def keep_memory_steady() -> None:
    """Fix the thresholds that glibc else moves with what it has seen.

    While they move, blocks of a clip's size go to the kernel and back on every request, or never, and one
    client's relay of a clip takes up to twice as long in one process as in another. Other C libraries have no
    `mallopt`; they are left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
