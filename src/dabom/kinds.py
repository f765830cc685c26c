"""The kind of a media file, by its first bytes."""

from __future__ import annotations

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
)
_PICTURE_BRANDS = (b"avif", b"avis", b"heic", b"heix", b"mif1", b"msf1", b"heim", b"hevc")
_SOUND_BRANDS = (b"M4A ", b"M4B ", b"F4A ")
_EBML = b"\x1a\x45\xdf\xa3"
_TS_PACKET = 188


def sniff(head: bytes) -> str | None:
    """The MIME type that the first bytes show, or None; 189 are enough. No declared type is asked for."""
    for at, magic, mime in _MAGIC:
        if head.startswith(magic, at) and (at != 8 or head.startswith(b"RIFF")):
            return mime
    if head.startswith(_EBML):
        return "video/webm" if b"webm" in head[:64] else "video/x-matroska"
    if head[4:8] == b"ftyp":
        return _sniff_brand(head[8:12])
    if head[4:8] in {b"moov", b"mdat", b"wide", b"free", b"skip"}:
        return "video/quicktime"
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0:
        return "audio/aac"
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 and head[1] & 0x06:
        return "audio/mpeg"
    if head[:1] == b"G" and len(head) >= _TS_PACKET and head[_TS_PACKET : _TS_PACKET + 1] in {b"", b"G"}:
        return "video/mp2t"
    return None


def _sniff_brand(brand: bytes) -> str:
    if brand in _PICTURE_BRANDS:
        return "image/avif" if brand.startswith(b"avi") else "image/heic"
    if brand == b"qt  ":
        return "video/quicktime"
    return "audio/mp4" if brand in _SOUND_BRANDS else "video/mp4"
