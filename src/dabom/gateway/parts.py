"""One media part of a request: what its string tells, and where it stands in the body."""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Mapping  # noqa: TC003 - fields of a msgspec.Struct are looked at when it runs
from typing import TYPE_CHECKING

import msgspec

from dabom.gateway import scan
from dabom.media.headers import picture_size
from dabom.media.sources import unescape

if TYPE_CHECKING:
    from dabom.gateway.routing.settings import Modality
    from dabom.gateway.scan import LongString

KINDS: Mapping[str, Modality] = {
    "image_url": "image",
    "image": "image",
    "input_image": "image",
    "video_url": "video",
    "video": "video",
    "audio_url": "audio",
    "input_audio": "audio",
    "file": "file",
}
"""Names of parts, as `type` and as the key of their content."""
_MAX_MARK_BYTES = 64
_SUBTYPES = {
    "image": "png jpeg jpg webp gif bmp tiff avif heic heif svg+xml",
    "video": "mp4 quicktime webm x-matroska x-msvideo mpeg mp2t jpeg",
    "audio": "wav x-wav wave mpeg mp3 mp4 aac ogg flac webm",
    "application": "pdf json octet-stream",
    "text": "plain markdown csv html",
}
_MIMES = frozenset(f"{kind}/{name}" for kind, names in _SUBTYPES.items() for name in names.split())


class Media(msgspec.Struct, frozen=True, omit_defaults=True):
    """One picture, video, sound or file of a request.

    `mime` is the type that the request says, `image/other` and the like when it is no usual one: it is
    written into logs, and what a client sends there may be anything.

    `bytes` is the decoded size; `sha256_head` covers the first 16 KiB as they were sent. An outside URL is
    only counted: its text may be a secret.
    """

    kind: str
    mime: str = ""
    bytes: int = 0
    sha256_head: str = ""
    width: int = 0
    height: int = 0
    remote: bool = False


class Place(msgspec.Struct, frozen=True):
    """Where a media part stands in the body, in bytes from its start.

    `start` to before `end` is the text of its string, without the quotes; `part_start` to before `part_end`
    the whole part with its braces. `message` counts the messages from 0.
    """

    start: int
    end: int
    part_start: int
    part_end: int
    message: int


def describe(kind: str, value: bytes, strings: Mapping[bytes, LongString]) -> Media:
    """Facts of the text of a data URI, or of bare base64 (`input_audio.data`)."""
    string = strings.get(value) if len(value) < _MAX_MARK_BYTES else None
    if string is None:
        digest = hashlib.sha256(value[: scan.DIGEST_BYTES]).hexdigest()[:16]
        head = tail = unescape(value)
        size = len(head)
    else:
        digest, head, tail = string.digest, unescape(string.head), unescape(string.tail)
        size = string.end - string.start - string.surplus
    mime, comma = "", 0
    if head[:5].lower() == b"data:":
        comma = head.find(b",", 0, 256) + 1
        mime = _usual(head[5 : comma - 1].split(b";", 1)[0]) if comma else ""
    elif b":" in head[:16]:
        return Media(kind=kind, remote=True)
    width, height = (picture_size(_decode_head(head[comma:])) or (0, 0)) if kind == "image" else (0, 0)
    padding = len(tail) - len(tail.rstrip(b"="))
    return Media(kind, mime, max(0, (size - comma - padding) * 3 // 4), digest, width, height)


def text_bytes(raw: bytes, strings: Mapping[bytes, LongString]) -> int:
    """About how many bytes of UTF-8 a JSON string has; of a long one with escapes, as its head has them."""
    value = raw[1:-1]
    string = strings.get(value) if len(value) < _MAX_MARK_BYTES else None
    size, head = (len(value), value) if string is None else (string.end - string.start, string.head)
    if b"\\" not in head:
        return size
    wide = head.count(b"\\u")  # Korean: three bytes for six
    plain = len(head) - wide * 3 - (head.count(b"\\") - wide)
    return max(0, plain if string is None else size * plain // len(head))


def _usual(declared: bytes) -> str:
    mime = declared.decode("ascii", "replace").lower()
    if mime in _MIMES:
        return mime
    kind = mime.partition("/")[0]
    return f"{kind}/other" if kind in _SUBTYPES else ""


def _decode_head(text: bytes) -> bytes:
    """The bytes of as many whole base64 groups as the head holds; empty when it is none.

    What was an escape has been undone, so that a backslash is one that was cut.
    """
    text = text.partition(b"\\")[0]
    try:
        return binascii.a2b_base64(text[: len(text) // 4 * 4])
    except binascii.Error:
        return b""
