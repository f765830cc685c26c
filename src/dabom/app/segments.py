"""Memory that bodies are read into, and that is used again as soon as nobody looks at it.

A new buffer of megabytes costs as much as filling it: the kernel clears every page at the first touch.
"""

from __future__ import annotations


class Segments:
    """Buffers of `size` bytes; at most `keep` of them are kept for later."""

    def __init__(self, size: int, keep: int) -> None:
        self.size = size
        self._keep = keep
        self._free: list[bytearray] = []
        self._lent: list[bytearray] = []

    def take(self) -> memoryview:
        """A view of a buffer whose bytes nobody needs any more, one that was used lately if there is one.

        Nobody gives a buffer back. They are looked through when none is left.
        """
        if not self._free:
            self._sweep()
        buffer = self._free.pop() if self._free else bytearray(self.size)
        if len(self._lent) < self._keep:
            self._lent.append(buffer)
        return memoryview(buffer)

    def _sweep(self) -> None:
        lent, self._lent = self._lent, []
        for buffer in lent:
            (self._free if _unseen(buffer) else self._lent).append(buffer)


def _unseen(buffer: bytearray) -> bool:
    """Whether no memoryview of it is left: Python refuses to change the size of one that is looked at."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
