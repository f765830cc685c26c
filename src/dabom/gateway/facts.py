"""What the gateway knows of a request: enough to route and to log it, nothing that anyone said or showed."""

from __future__ import annotations

import binascii
import hashlib
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import msgspec

from dabom.gateway import scan
from dabom.media.headers import picture_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dabom.gateway.scan import Skeleton

T = TypeVar("T")

_MAX_MEDIA, _MAX_LOOKS = 1024, 16_384
"""Media that are described, and messages and parts that are looked at: a body may hold millions of them."""
_NULL = msgspec.Raw(b"null")
_KINDS = {
    "image_url": "image",
    "image": "image",
    "input_image": "image",
    "video_url": "video",
    "video": "video",
    "audio_url": "audio",
    "input_audio": "audio",
    "file": "file",
}
_MEDIA_WORDS = tuple(name.encode() for name in _KINDS)


class Media(msgspec.Struct, frozen=True, omit_defaults=True):
    """One picture, video, sound or file of a request.

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


class Facts(msgspec.Struct, frozen=True):
    """The facts of one request."""

    size: int = 0
    model: str | None = None
    stream: bool = False
    media: tuple[Media, ...] = ()


class _Body(msgspec.Struct):
    model: msgspec.Raw = _NULL
    stream: msgspec.Raw = _NULL
    messages: msgspec.Raw = _NULL


class _Message(msgspec.Struct):
    content: msgspec.Raw = _NULL


class _Part(msgspec.Struct):
    type: msgspec.Raw = _NULL
    image_url: msgspec.Raw = _NULL
    image: msgspec.Raw = _NULL
    input_image: msgspec.Raw = _NULL
    video_url: msgspec.Raw = _NULL
    video: msgspec.Raw = _NULL
    audio_url: msgspec.Raw = _NULL
    input_audio: msgspec.Raw = _NULL
    file: msgspec.Raw = _NULL


class _Source(msgspec.Struct):
    url: msgspec.Raw = _NULL
    data: msgspec.Raw = _NULL
    file_data: msgspec.Raw = _NULL


class FactsReader:
    """Reads the facts of bodies. Holds the decoders, which are costly to make."""

    def __init__(self) -> None:
        self._body = msgspec.json.Decoder(_Body)
        self._list = msgspec.json.Decoder(list[msgspec.Raw])
        self._message = msgspec.json.Decoder(_Message)
        self._part = msgspec.json.Decoder(_Part)
        self._source = msgspec.json.Decoder(_Source)
        self._text = msgspec.json.Decoder(str)

    def read(self, skeleton: Skeleton) -> Facts:
        """Raises `InvalidJson`; a field of an unexpected type is left to the upstream to complain about."""
        body = scan.decode(skeleton.text, self._body)
        return Facts(
            size=skeleton.size,
            model=self._lenient(body.model, self._text),
            stream=bytes(body.stream) == b"true",
            media=tuple(islice(self._media(body.messages, skeleton), _MAX_MEDIA))
            if _may_hold_media(skeleton.text)
            else (),
        )

    def _media(self, messages: msgspec.Raw, skeleton: Skeleton) -> Iterator[Media]:
        looks = _MAX_LOOKS
        for raw in self._lenient(messages, self._list) or ():
            looks -= 1
            if looks < 0:
                return
            message = self._lenient(raw, self._message)
            if message is None or not bytes(message.content).startswith(b"["):
                continue
            for piece in self._lenient(message.content, self._list) or ():
                looks -= 1
                if looks < 0:
                    return
                part = self._lenient(piece, self._part)
                if part is not None:
                    yield from self._of_part(part, skeleton)

    def _of_part(self, part: _Part, skeleton: Skeleton) -> Iterator[Media]:
        for name, kind in _KINDS.items():
            raw: msgspec.Raw = getattr(part, name)
            if raw is _NULL:
                continue
            source = self._lenient(raw, self._source)
            if source is not None:
                texts = (source.url, source.data, source.file_data)
                raw = next((r for r in texts if bytes(r).startswith(b'"')), _NULL)
            text = bytes(raw)
            if text.startswith(b'"'):
                yield _describe(kind, text[1:-1], skeleton)

    def _lenient(self, raw: msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T | None:
        try:
            return decoder.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


def _may_hold_media(text: bytes) -> bool:
    """Whether a look at the messages can find any; a key may also be spelled with escapes."""
    # the word first: a search for a quote is slow in a text of quotes
    return any(word in text and b'"%b"' % word in text for word in _MEDIA_WORDS) or b"\\u" in text


def _describe(kind: str, value: bytes, skeleton: Skeleton) -> Media:
    """Facts of the text of a data URI, or of bare base64 (`input_audio.data`)."""
    string = skeleton.strings.get(value)
    if string is None:
        digest = hashlib.sha256(value[: scan.DIGEST_BYTES]).hexdigest()[:16]
        head = tail = _unescape(value)
        size = len(head)
    else:
        digest, head, tail = string.digest, _unescape(string.head), _unescape(string.tail)
        size = string.end - string.start - string.surplus
    mime, comma = "", 0
    if head.startswith(b"data:"):
        comma = head.find(b",", 0, 256) + 1
        mime = head[5 : comma - 1].split(b";", 1)[0].decode("ascii", "replace")[:64] if comma else ""
    elif b":" in head[:16]:
        return Media(kind=kind, remote=True)
    width, height = (picture_size(_decode_head(head[comma:])) or (0, 0)) if kind == "image" else (0, 0)
    padding = len(tail) - len(tail.rstrip(b"="))
    return Media(kind, mime, max(0, (size - comma - padding) * 3 // 4), digest, width, height)


def _unescape(text: bytes) -> bytes:
    """Base64 as it is meant; some writers of JSON escape its slashes or its padding."""
    return text.replace(b"\\/", b"/").replace(b"\\u003d", b"=") if b"\\" in text else text


def _decode_head(text: bytes) -> bytes:
    """The bytes of as many whole base64 groups as the head holds; empty when it is none."""
    try:
        return binascii.a2b_base64(text[: len(text) // 4 * 4])
    except binascii.Error:
        return b""
