"""The parts of a message: text, pictures, video and sound, from a path, bytes or a URL."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from dabom.errors import BodyTooLarge, InvalidMedia
from dabom.kinds import sniff

Source: TypeAlias = str | Path | bytes
Kind: TypeAlias = Literal["text", "image", "video", "audio"]

MAX_MEDIA_BYTES = 48 << 20
"""A file over this is refused: as base64 it would not fit the 64 MB that the gateway takes."""

_READABLE = {
    "image": "PNG, JPEG, WebP, GIF, BMP, TIFF, AVIF or HEIC",
    "video": "MP4, MOV, WebM, Matroska, AVI or MPEG-TS",
    "audio": "WAV, MP3, FLAC, Ogg or M4A",
}
_INPUT_AUDIO = {"audio/wav": b"wav", "audio/mpeg": b"mp3"}
_HEAD = 192


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a message, already in JSON. Its repr tells kind and size, never the content."""

    kind: Kind
    json: bytes = field(repr=False)
    prompt: str = field(default="", repr=False)

    @property
    def size(self) -> int:
        """Bytes in the request's body."""
        return len(self.json)


def text(value: str) -> Part:
    """A text part."""
    return Part("text", msgspec.json.encode({"type": "text", "text": value}), value)


async def image(source: Source) -> Part:
    """An `image_url` part; a file or bytes become a data URI. Raises InvalidMedia, BodyTooLarge."""
    return await asyncio.to_thread(_url_part, "image", source)


async def video(source: Source) -> Part:
    """A `video_url` part; a file or bytes become a data URI. Raises InvalidMedia, BodyTooLarge."""
    return await asyncio.to_thread(_url_part, "video", source)


async def audio(source: Source) -> Part:
    """An `input_audio` part for WAV and MP3, else an `audio_url` part. Raises InvalidMedia, BodyTooLarge."""
    return await asyncio.to_thread(_audio_part, source)


def _is_url(source: Source) -> bool:
    return isinstance(source, str) and source.startswith(("http://", "https://", "data:"))


def _url_part(kind: Kind, source: Source) -> Part:
    name = kind.encode()
    head = b'{"type":"%s_url","%s_url":{"url":' % (name, name)
    if _is_url(source):
        return Part(kind, head + msgspec.json.encode(source) + b"}}")
    content, mime = _read(kind, source)
    return Part(kind, b"".join((head, b'"data:', mime.encode(), b";base64,", b64encode(content), b'"}}')))


def _audio_part(source: Source) -> Part:
    if _is_url(source):
        return _url_part("audio", source)
    content, mime = _read("audio", source)
    if mime not in _INPUT_AUDIO:
        return _url_part("audio", content)
    head = b'{"type":"input_audio","input_audio":{"format":"%s","data":"' % _INPUT_AUDIO[mime]
    return Part("audio", b"".join((head, b64encode(content), b'"}}')))


def _read(kind: Kind, source: Source) -> tuple[bytes, str]:
    """The bytes and their MIME type; a file is looked at before it is read whole."""
    if isinstance(source, bytes):
        name = f"{kind} bytes"
        _check_size(name, len(source))
        return source, _check_kind(kind, name, source)
    path = Path(source)
    name = path.name
    try:
        with path.open("rb") as file:
            _check_size(name, path.stat().st_size)
            mime = _check_kind(kind, name, file.read(_HEAD))
            file.seek(0)
            content = file.read(MAX_MEDIA_BYTES + 1)
    except FileNotFoundError:
        raise InvalidMedia(f"{path}: no such file; give {_READABLE[kind]}") from None
    except IsADirectoryError:
        raise InvalidMedia(f"{path}: is a folder; give one file of {_READABLE[kind]}") from None
    except OSError as error:
        raise InvalidMedia(f"{path}: cannot be read ({error.strerror})") from None
    _check_size(name, len(content))
    return content, mime


def _check_size(name: str, size: int) -> None:
    if size == 0:
        raise InvalidMedia(f"{name}: the file is empty")
    if size > MAX_MEDIA_BYTES:
        raise BodyTooLarge(
            f"{name}: has {size:,} bytes; at most {MAX_MEDIA_BYTES:,} fit one request; cut or compress it"
        )


def _check_kind(kind: Kind, name: str, head: bytes) -> str:
    mime = sniff(head[:_HEAD])
    if mime is None:
        raise InvalidMedia(f"{name}: the first bytes are not those of {_READABLE[kind]}")
    if not mime.startswith(kind):
        raise InvalidMedia(f"{name}: is {mime}; as {kind} give {_READABLE[kind]}")
    return mime
