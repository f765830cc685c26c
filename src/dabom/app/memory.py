"""The allocator and the collector, told how a gateway uses memory."""

from __future__ import annotations

import ctypes
import gc

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


def spare_collector() -> None:
    """Leave what the process has loaded alone, and look for cycles less often. Call it when all is set up.

    A request leaves next to no cycles; the default thresholds would have the collector walk over everything a
    hundred times a second under load.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
