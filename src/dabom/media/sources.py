"""Random access to the bytes of a file, also to one that is base64 inside a larger text.

A reader of headers and tables asks for a few kilobytes at the start, in the middle and at the end. Of a
base64 text only the groups of four that hold them are decoded.
"""

from __future__ import annotations

import binascii
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

ReadText = Callable[[int, int], bytes]
"""`read_text(start, end)` gives the characters from `start` to before `end`."""


class Source(Protocol):
    """Random access to the bytes of one file."""

    @property
    def size(self) -> int:
        """Bytes in all."""

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer at the end, none beyond it."""


_ESCAPES = (
    (b"\\/", b"/"),
    *((b"\\u%b" % code, char) for code, char in ((b"002b", b"+"), (b"002f", b"/"), (b"003d", b"="))),
    *((b"\\u%b" % code, char) for code, char in ((b"002B", b"+"), (b"002F", b"/"), (b"003D", b"="))),
)


def unescape(text: bytes) -> bytes:
    """Base64 in a JSON string as it is meant; some writers of JSON escape slashes, plus signs or padding."""
    if b"\\" in text:
        for escape, char in _ESCAPES:
            text = text.replace(escape, char)
    return text


class BytesSource:
    """A file that is in memory."""

    def __init__(self, content: bytes | memoryview) -> None:
        self._content = memoryview(content)
        self.size = len(content)

    def read(self, offset: int, count: int) -> bytes:
        return bytes(self._content[offset : offset + count])


class FileSource:
    """An open file; the caller closes it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = file.seek(0, 2)

    def read(self, offset: int, count: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(count)


class Base64Source:
    """A file as base64 text of `size` characters, which `read_text` gives piece by piece.

    Strict, as vLLM is: the standard alphabet, padded, no line breaks. Raises `ValueError` where it is not so.
    """

    def __init__(self, read_text: ReadText, size: int) -> None:
        if size % 4:
            raise ValueError("the length of the base64 text is no multiple of four")
        self._read_text = read_text
        self._chars = size
        tail = read_text(max(0, size - 4), size)
        self.size = size // 4 * 3 - (len(tail) - len(tail.rstrip(b"=")))

    def read(self, offset: int, count: int) -> bytes:
        end = min(offset + count, self.size)
        if end <= offset or offset < 0:
            return b""
        first = offset // 3 * 4
        text = self._read_text(first, min((end + 2) // 3 * 4, self._chars))
        found = binascii.a2b_base64(text, strict_mode=True)
        return found[offset % 3 : offset % 3 + end - offset]


class Pieces:
    """A text that lies in several pieces, such as the body of an upload, read without joining them."""

    def __init__(self, pieces: Sequence[bytes | memoryview]) -> None:
        self._pieces = pieces
        self._ends = list(accumulate(len(piece) for piece in pieces))

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self._ends[-1] if self._ends else 0

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`."""
        views = self.views(start, end)
        return bytes(views[0]) if len(views) == 1 else b"".join(views)

    def views(self, start: int, end: int) -> list[memoryview]:
        """The same where they lie, without a copy."""
        found = []
        at = bisect_right(self._ends, start)
        while at < len(self._ends) and start < end:
            begin = self._ends[at - 1] if at else 0
            found.append(memoryview(self._pieces[at])[start - begin : end - begin])
            start = self._ends[at]
            at += 1
        return found
