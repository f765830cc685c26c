"""Read newline-delimited JSON from pieces of bytes."""

from __future__ import annotations

from dabom.errors import AnswerBroken


class LineReader:
    """Turns pieces with any borders into lines without their line ends; blank lines are left out.

    A line over `max_line_bytes` raises `AnswerBroken`.
    """

    def __init__(self, max_line_bytes: int = 64 << 20) -> None:
        self._max = max_line_bytes
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes."""
        *whole, rest = piece.split(b"\n")
        lines: list[bytes] = []
        for part in whole:
            line = bytes(self._rest) + part if self._rest else part
            self._rest.clear()
            if line := line.strip():
                lines.append(line)
        self._rest += rest
        if len(self._rest) > self._max:
            raise AnswerBroken(f"a line of the answer has over {self._max:,} bytes")
        return lines

    def end(self) -> list[bytes]:
        """The last line, when the stream ended without a line end; whether it is whole, its JSON tells."""
        line = bytes(self._rest).strip()
        self._rest.clear()
        return [line] if line else []
