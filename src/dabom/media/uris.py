"""Data URIs: the only form in which media is taken. No outside address is ever opened."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from dabom.errors import InvalidMedia

_HEAD = re.compile(r"data:([A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+)?((?:;[^;,]*)*),", re.ASCII)
_HEAD_CHARS = 512
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):", re.ASCII)


@dataclass(frozen=True)
class DataUri:
    """The declared type, which is a claim and no fact, and the bytes of each comma-separated part."""

    declared: str
    parts: tuple[bytes, ...]


def read_data_uri(uri: str) -> DataUri:
    """The bytes of a `data:` URI; `data:video/jpeg;base64,a,b` has several parts.

    Raises InvalidMedia for any other URL, for text that is not base64, and for nothing at all.
    """
    head = _HEAD.match(uri[:_HEAD_CHARS])
    if head is None:
        scheme = _SCHEME.match(uri[:64])
        found = f"a {scheme.group(1).lower()}: URL" if scheme else "a string without a scheme"
        raise InvalidMedia(f"media URL is {found}; only base64 data: URIs are read, no address is opened")
    if ";base64" not in head.group(2).lower():
        raise InvalidMedia("data: URI is not marked ;base64")
    declared = (head.group(1) or "").lower()
    body = uri[head.end() :]
    pieces = body.split(",") if declared.startswith("video/") else [body]
    return DataUri(declared, tuple(read_base64(piece) for piece in pieces))


def read_base64(text: str) -> bytes:
    """The bytes of one base64 string. Raises InvalidMedia when it is empty or not base64."""
    try:
        found = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as fault:
        raise InvalidMedia("media is not valid base64") from fault
    if not found:
        raise InvalidMedia("media is empty: 0 bytes")
    return found
