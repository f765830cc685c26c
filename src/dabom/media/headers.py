"""What the first bytes of a file tell, without decoding it.

Standard library only; nothing here raises on bad bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (8, b"WAVE", "audio/wav"),
    (8, b"AVI ", "video/x-msvideo"),
    (0, b"fLaC", "audio/flac"),
    (0, b"OggS", "audio/ogg"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\x1a\x45\xdf\xa3", "video/x-matroska"),
)
_PICTURE_BRANDS = (b"avif", b"avis", b"heic", b"heix", b"mif1", b"msf1", b"heim", b"hevc")
_SOUND_BRANDS = (b"M4A ", b"M4B ", b"F4A ")
_CONTAINERS = frozenset({b"moov", b"trak", b"mdia"})
_TS_PACKET = 188


def sniff(head: bytes) -> str | None:
    """The MIME type that the magic bytes show, or None. A declared type is never asked for."""
    for at, magic, mime in _MAGIC:
        if head.startswith(magic, at) and (at != 8 or head.startswith(b"RIFF")):
            return mime
    if head[4:8] == b"ftyp":
        return _sniff_brand(head[8:12])
    if head[4:8] in {b"moov", b"mdat", b"wide", b"free", b"skip"}:
        return "video/quicktime"
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0:
        return "audio/aac"
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 and head[1] & 0x06:
        return "audio/mpeg"
    if head[:1] == b"G" and (len(head) <= _TS_PACKET or head[_TS_PACKET : _TS_PACKET + 1] == b"G"):
        return "video/mp2t"
    return None


def _sniff_brand(brand: bytes) -> str:
    if brand in _PICTURE_BRANDS:
        return "image/avif" if brand.startswith(b"avi") else "image/heic"
    return "audio/mp4" if brand in _SOUND_BRANDS else "video/mp4"


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


@dataclass(frozen=True)
class VideoHead:
    """What the boxes of an mp4 or QuickTime file state; None where the head ends before the box."""

    width: int | None
    height: int | None
    duration_s: float | None


def video_facts(head: bytes) -> VideoHead | None:
    """Size and duration from the `moov` boxes of an mp4, as far as they lie within `head`.

    Best effort: None when the bytes are no mp4 or `moov` comes later (a file without faststart).
    """
    if sniff(head) not in {"video/mp4", "video/quicktime", "audio/mp4"}:
        return None
    duration: float | None = None
    size: tuple[int, int] | None = None
    for kind, body in _boxes(head, 0, len(head)):
        try:
            if kind == b"mvhd":
                duration = _movie_duration(body)
            elif kind == b"tkhd" and size is None:
                size = _track_size(body)
        except (struct.error, IndexError, ZeroDivisionError):
            continue
    if duration is None and size is None:
        return None
    width, height = size or (None, None)
    return VideoHead(width, height, duration)


def _boxes(head: bytes, at: int, end: int) -> Iterator[tuple[bytes, bytes]]:
    while at + 8 <= end:
        length, kind = int.from_bytes(head[at : at + 4], "big"), head[at + 4 : at + 8]
        start = at + 8
        if length == 1:
            length, start = int.from_bytes(head[at + 8 : at + 16], "big"), at + 16
        elif length == 0:
            length = end - at
        if length < start - at:
            return
        stop = min(at + length, end)
        if kind in _CONTAINERS:
            yield from _boxes(head, start, stop)
        elif kind in {b"mvhd", b"tkhd"}:
            yield kind, head[start:stop]
        at += length


def _movie_duration(body: bytes) -> float | None:
    scale, ticks = struct.unpack_from(">IQ" if body[0] == 1 else ">II", body, 20 if body[0] == 1 else 12)
    return ticks / scale if ticks and ticks not in {0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF} else None


def _track_size(body: bytes) -> tuple[int, int] | None:
    at = 52 if body[0] == 1 else 40
    matrix = struct.unpack_from(">9i", body, at)
    width, height = struct.unpack_from(">II", body, at + 36)
    if not width or not height:
        return None
    size = width >> 16, height >> 16
    # A matrix without a horizontal scale turns the picture by a quarter.
    return (size[1], size[0]) if matrix[0] == 0 and matrix[1] != 0 else size
