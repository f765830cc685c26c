"""Size, orientation and number of frames of a picture, from its headers. Nothing is decoded."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from dabom.media.headers import picture_size
from dabom.media.values import MediaFacts

if TYPE_CHECKING:
    from dabom.media.sources import Source

_HEAD_BYTES = 512
_TAIL_BYTES, _MAX_STEP_BYTES = 4096, 2**20
_MAX_CHUNKS = 4096
_MAX_PAGES = 64
_MAX_TAGS = 512
"""They stand in rising order, and the size is among the first."""
_GIF_BYTES = 262_144
_EXIF_BYTES = 65_536
_NO_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})
"""JPEG markers without a length: TEM, the restart markers, the start of the image."""


def picture_facts(mime: str, source: Source) -> MediaFacts:
    """The facts of a picture whose magic bytes say `mime`; may raise `struct.error` or `IndexError`."""
    readers = {
        "image/png": _png,
        "image/jpeg": _jpeg,
        "image/gif": _gif,
        "image/webp": _webp,
        "image/bmp": _bmp,
        "image/tiff": _tiff,
        "image/avif": _avif,
    }
    reader = readers.get(mime)
    return MediaFacts("image", mime, problem="unsupported") if reader is None else reader(mime, source)


def _picture(mime: str, size: tuple[int, int], orientation: int, frames: int, whole: bool) -> MediaFacts:
    width, height = size
    problem = "" if width and height else "damaged"
    if not problem and not whole:
        problem = "truncated"
    return MediaFacts(
        "image",
        mime,
        width,
        height,
        orientation if 1 <= orientation <= 8 else 1,
        max(1, frames),
        problem=problem,
    )


def _png(mime: str, source: Source) -> MediaFacts:
    head = source.read(0, _HEAD_BYTES)
    size = picture_size(head) or (0, 0)
    frames, orientation, at, seen = 1, 1, 8, False
    whole = b"IEND" in source.read(max(0, source.size - 64), 64)
    for _ in range(_MAX_CHUNKS):
        intro = head[at : at + 8] if at + 8 <= len(head) else source.read(at, 8)
        if len(intro) < 8:
            break
        length, kind = struct.unpack(">I4s", intro)
        if kind == b"acTL":
            frames = int.from_bytes(source.read(at + 8, 4), "big")
        elif kind == b"eXIf" and not seen:
            seen = True
            orientation = _exif_orientation(source.read(at + 8, min(length, _EXIF_BYTES)))
        elif kind == b"IEND":
            whole = True
            break
        elif kind == b"IDAT" and whole:
            break
        at += 12 + length
    return _picture(mime, size, orientation, frames, whole)


def _jpeg(mime: str, source: Source) -> MediaFacts:
    head = source.read(0, _HEAD_BYTES)
    size, orientation, at, seen = (0, 0), 1, 2, False
    for _ in range(_MAX_CHUNKS):
        intro = head[at : at + 9] if at + 9 <= len(head) else source.read(at, 9)
        if len(intro) < 4 or intro[0] != 0xFF:
            break
        marker, length = intro[1], int.from_bytes(intro[2:4], "big")
        if marker == 0xFF:
            at += 1
        elif marker in _NO_LENGTH:
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            height, width = struct.unpack(">HH", intro[5:9])
            size = (width, height)
            break
        elif marker in {0xD9, 0xDA}:
            break
        else:
            if marker == 0xE1 and not seen and source.read(at + 4, 6) == b"Exif\0\0":
                seen = True  # the first counts, for decoders too
                orientation = _exif_orientation(source.read(at + 10, length - 8))
            at += 2 + length
    return _picture(mime, size, orientation, 1, _ends_jpeg(source, at))


def _ends_jpeg(source: Source, start: int) -> bool:
    """Whether the end marker is there. Some cameras write more behind it, so all is searched in the end."""
    end, step = source.size, _TAIL_BYTES
    while end > start:
        begin = max(start, end - step)
        if b"\xff\xd9" in source.read(begin, end - begin + 1):
            return True
        end, step = begin, min(2 * step, _MAX_STEP_BYTES)
    return False


def _exif_orientation(tiff: bytes) -> int:
    """Tag 274 of the first directory; 1 when it is not there."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None or len(tiff) < 8:
        return 1
    at = struct.unpack_from(order + "I", tiff, 4)[0]
    if at + 2 > len(tiff):
        return 1
    for entry in range(struct.unpack_from(order + "H", tiff, at)[0]):
        place = at + 2 + entry * 12
        if place + 12 > len(tiff):
            break
        tag, _, _, value = struct.unpack_from(order + "HHIH", tiff, place)
        if tag == 274:
            return int(value)
    return 1


def _gif(mime: str, source: Source) -> MediaFacts:
    """Frames are counted in the first 256 KiB; two are enough to know that it moves."""
    data = source.read(0, _GIF_BYTES)
    size = picture_size(data) or (0, 0)
    whole = b"\x3b" in source.read(max(0, source.size - 16), 16)
    at = 13 + (3 * (2 << (data[10] & 7)) if data[10] & 0x80 else 0)
    frames = 0
    while at < len(data):
        block = data[at]
        if block == 0x21:
            at = _skip_blocks(data, at + 2)
        elif block == 0x2C and at + 10 < len(data):
            frames += 1
            flags = data[at + 9]
            table = 3 * (2 << (flags & 7)) if flags & 0x80 else 0
            at = _skip_blocks(data, at + 11 + table)
        else:
            break
    return _picture(mime, size, 1, frames, whole)


def _skip_blocks(data: bytes, at: int) -> int:
    while at < len(data) and data[at]:
        at += data[at] + 1
    return at + 1


def _webp(mime: str, source: Source) -> MediaFacts:
    head = source.read(0, _HEAD_BYTES)
    size = picture_size(head) or (0, 0)
    length = 8 + int.from_bytes(head[4:8], "little")
    frames, orientation, at = 0, 1, 12
    if head[12:16] == b"VP8X":
        for _ in range(_MAX_CHUNKS):
            intro = source.read(at, 8)
            if len(intro) < 8:
                break
            kind, count = struct.unpack("<4sI", intro)
            if kind == b"ANMF":
                frames += 1
            elif kind == b"EXIF":
                exif = source.read(at + 8, min(count, _EXIF_BYTES))
                orientation = _exif_orientation(exif.removeprefix(b"Exif\0\0"))
            at += 8 + count + count % 2
    # an odd last chunk without its filling byte is common
    return _picture(mime, size, orientation, frames, source.size + 1 >= length)


def _bmp(mime: str, source: Source) -> MediaFacts:
    head = source.read(0, 64)
    stated, start, header = *struct.unpack_from("<I4xI", head, 2), struct.unpack_from("<I", head, 14)[0]
    width, height = struct.unpack_from("<HH" if header == 12 else "<ii", head, 18)
    whole = source.size >= max(min(stated, 1 << 31), start + 1)
    return _picture(mime, (abs(width), abs(height)), 1, 1, whole)


def _tiff(mime: str, source: Source) -> MediaFacts:
    head = source.read(0, 8)
    order = "<" if head[:2] == b"II" else ">"
    at = struct.unpack_from(order + "I", head, 4)[0]
    tags: dict[int, int] = {}
    pages, seen = 0, {0}
    while at not in seen and pages < _MAX_PAGES:
        seen.add(at)
        count = source.read(at, 2)
        if len(count) < 2:
            return _picture(mime, (tags.get(256, 0), tags.get(257, 0)), tags.get(274, 1), pages, False)
        entries = struct.unpack(order + "H", count)[0]
        if pages == 0:
            tags = _tiff_tags(source.read(at + 2, min(entries, _MAX_TAGS) * 12), entries, order)
        pages += 1
        after = source.read(at + 2 + entries * 12, 4)
        if len(after) < 4:
            break
        at = struct.unpack(order + "I", after)[0]
    return _picture(mime, (tags.get(256, 0), tags.get(257, 0)), tags.get(274, 1), pages, True)


def _tiff_tags(table: bytes, entries: int, order: str) -> dict[int, int]:
    found = {}
    for entry in range(min(entries, len(table) // 12)):
        tag, kind, _ = struct.unpack_from(order + "HHI", table, entry * 12)
        if tag in {256, 257, 274}:
            found[tag] = struct.unpack_from(order + ("H" if kind == 3 else "I"), table, entry * 12 + 8)[0]
    return found


def _avif(mime: str, source: Source) -> MediaFacts:
    """The largest item of the `meta` box; its parts and its thumbnail are smaller."""
    head = source.read(0, 16_384)
    at, size = head.find(b"ispe"), (0, 0)
    while at >= 0 and at + 16 <= len(head):
        width, height = struct.unpack_from(">II", head, at + 8)
        size = max(size, (width, height), key=lambda pair: pair[0] * pair[1])
        at = head.find(b"ispe", at + 4)
    frames = 2 if head[8:12] == b"avis" else 1
    return _picture(mime, size, 1, frames, True)
