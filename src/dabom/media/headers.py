"""The size of a picture by its first bytes, without decoding it.

Standard library only; nothing here raises on bad bytes.
"""

from __future__ import annotations

import struct


def picture_size(head: bytes) -> tuple[int, int] | None:
    """Width and height in pixels as the header of a PNG, JPEG, WebP or GIF states them.

    A few kilobytes are enough; None when the bytes are of another kind or end before the size.
    """
    try:
        if head.startswith(b"\x89PNG\r\n\x1a\n"):
            return _pair(">II", head, 16) if head[12:16] == b"IHDR" else None
        if head.startswith((b"GIF87a", b"GIF89a")):
            return _pair("<HH", head, 6)
        if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
            return _webp_size(head)
        if head.startswith(b"\xff\xd8"):
            return _jpeg_size(head)
    except (struct.error, IndexError):
        return None
    return None


def _pair(layout: str, head: bytes, at: int) -> tuple[int, int]:
    width, height = struct.unpack_from(layout, head, at)
    return int(width), int(height)


def _webp_size(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X":
        if len(head) < 30:
            return None
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if kind == b"VP8L":
        bits = struct.unpack_from("<I", head, 21)[0]
        return (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
    if kind == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = _pair("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head):
        if head[at] != 0xFF:
            return None
        marker = head[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            height, width = _pair(">HH", head, at + 5)
            return width, height
        if marker == 0xDA:
            return None
        # Markers without a length: TEM and the restart markers.
        at += 2 if marker == 0x01 or 0xD0 <= marker <= 0xD8 else 2 + _pair(">HH", head, at + 2)[0]
    return None
