"""What a media file holds, read from its headers and tables. Nothing is decoded.

`read_facts` takes any `Source`; `read_text_facts` takes the text of a media part as it stands in a request: a
data URI or bare base64.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING

from dabom.kinds import sniff
from dabom.media.matroska import avi_facts, matroska_facts
from dabom.media.sounds import sound_facts
from dabom.media.sources import Base64Source
from dabom.media.stills import picture_facts
from dabom.media.tracks import movie_facts
from dabom.media.values import MediaFacts

if TYPE_CHECKING:
    from dabom.media.sources import ReadText, Source
    from dabom.media.values import Kind

_SNIFF_BYTES = 512
_URI_HEAD = 256
_MOVIES = frozenset({"video/mp4", "audio/mp4", "video/quicktime"})
_FOREIGN = (
    (b"%PDF", "application/pdf"),
    (b"\x00\x00\x01\x00", "image/x-icon"),
    (b"\x00\x00\x00\x0cjP  ", "image/jp2"),
    (b"\x00\x00\x00\x0cJXL ", "image/jxl"),
    (b"\xff\x0a", "image/jxl"),
    (b"8BPS", "image/vnd.adobe.photoshop"),
)


def read_facts(source: Source) -> MediaFacts:
    """The facts of one file. Never raises on bad bytes; `problem` says what is wrong."""
    if not source.size:
        return MediaFacts("unknown", problem="empty")
    try:
        head = source.read(0, _SNIFF_BYTES)
    except ValueError:
        return MediaFacts("unknown", problem="not_base64")
    mime = sniff(head)
    if mime is None:
        return _foreign(head)
    try:
        return _read(mime, source)
    except (struct.error, IndexError, ValueError, OverflowError) as fault:
        problem = "not_base64" if "base64" in str(fault) or "padding" in str(fault) else "damaged"
        return MediaFacts(_kind(mime), mime, problem=problem)


def _read(mime: str, source: Source) -> MediaFacts:
    if mime in _MOVIES:
        return movie_facts(mime, source)
    if mime.startswith("image/"):
        return picture_facts(mime, source)
    if mime.startswith("audio/"):
        return sound_facts(mime, source)
    if mime in {"video/x-matroska", "video/webm"}:
        return matroska_facts(mime, source)
    if mime == "video/x-msvideo":
        return avi_facts(mime, source)
    return MediaFacts("video", mime, estimated=True)  # MPEG-TS states neither length nor size


def _kind(mime: str) -> Kind:
    kinds: dict[str, Kind] = {"image": "image", "video": "video", "audio": "audio"}
    return kinds.get(mime.partition("/")[0], "unknown")


def _foreign(head: bytes) -> MediaFacts:
    for magic, mime in _FOREIGN:
        if head.startswith(magic):
            return MediaFacts(_kind(mime), mime, problem="unsupported")
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith(b"<svg") or (text.startswith(b"<") and b"<svg" in text):
        return MediaFacts("image", "image/svg+xml", problem="unsupported")
    return MediaFacts("unknown", problem="unknown_format")


def read_text_facts(read_text: ReadText, size: int) -> tuple[str, MediaFacts]:
    """Declared type and facts of a data URI or of bare base64 of `size` characters.

    `data:video/jpeg;base64,A,B` is a clip given as pictures: `frames` counts them. The declared type is a
    claim, and empty when there is none. The text must hold no escapes of JSON.
    """
    head = read_text(0, min(size, _URI_HEAD))
    declared, start = "", 0
    if head[:5].lower() == b"data:":
        comma = head.find(b",")
        words = head[5:comma].decode("ascii", "replace").lower().split(";") if comma >= 0 else [""]
        declared, start = words[0].strip()[:64], comma + 1
        if "base64" not in (word.strip() for word in words[1:]):
            return declared, MediaFacts("unknown", problem="not_base64")

    def inner(first: int, last: int) -> bytes:
        return read_text(start + first, start + last)

    if declared == "video/jpeg":
        return declared, _sequence(inner, size - start)
    return declared, _of_base64(inner, size - start)


def _of_base64(read_text: ReadText, size: int) -> MediaFacts:
    if size <= 0:
        return MediaFacts("unknown", problem="empty")
    try:
        return read_facts(Base64Source(read_text, size))
    except ValueError:
        return MediaFacts("unknown", problem="not_base64")


def _sequence(read_text: ReadText, size: int) -> MediaFacts:
    """A clip as pictures with commas between them; their rate is told by the request, not by them."""
    text = read_text(0, size)
    end = text.find(b",")
    first = _of_base64(lambda start, stop: text[start:stop], len(text) if end < 0 else end)
    if first.kind != "image":
        return replace(first, problem=first.problem or "unsupported")
    return replace(first, kind="video", mime="video/jpeg", frames=text.count(b",") + 1, estimated=True)
