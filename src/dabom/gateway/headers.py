"""Which headers cross the gateway, and the id of a request."""

from __future__ import annotations

import re
from math import ceil
from random import getrandbits
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dabom.gateway.asgi import Headers

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# made anew for the next hop, or meant for the gateway alone
_NOT_UPSTREAM = _HOP_BY_HOP | {
    b"host",
    b"content-length",
    b"expect",
    b"x-request-id",
    b"authorization",
    b"x-api-key",
}
_NOT_DOWNSTREAM = _HOP_BY_HOP | {b"date", b"server", b"x-request-id", b"content-length"}
_SANE_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


def find(headers: Headers, name: bytes) -> bytes | None:
    """The value of the first header of that name."""
    for key, value in headers:
        if key == name:
            return value
    return None


def request_id(headers: Headers) -> str:
    """The client's own id if it is a sane token, else a new one."""
    given = find(headers, b"x-request-id")
    if given is not None and _SANE_ID.fullmatch(given):
        return given.decode()
    return f"{getrandbits(64):016x}"


def for_upstream(headers: Headers, request_id: str, authorization: bytes | None) -> Headers:
    """What the upstream gets of the client's headers. `authorization` replaces the client's own."""
    named = _named_by_connection(headers)
    kept = [pair for pair in headers if pair[0] not in _NOT_UPSTREAM and pair[0] not in named]
    kept.append((b"x-request-id", request_id.encode()))
    if authorization is not None:
        kept.append((b"authorization", authorization))
    return kept


def for_client(headers: Headers, request_id: str) -> Headers:
    """What the client gets of the upstream's headers, without a length."""
    named = _named_by_connection(headers)
    kept = [pair for pair in headers if pair[0] not in _NOT_DOWNSTREAM and pair[0] not in named]
    kept.append((b"x-request-id", request_id.encode()))
    return kept


def media_type(value: bytes | None) -> bytes:
    """`application/json` of `Application/JSON; charset=utf-8`."""
    return b"" if value is None else value.split(b";", 1)[0].strip().lower()


def is_json(value: bytes | None) -> bool:
    """A JSON media type; a missing one is taken for JSON, as vLLM does."""
    kind = media_type(value)
    return kind in (b"", b"application/json") or (
        kind.startswith(b"application/") and kind.endswith(b"+json")
    )


def content_length(headers: Headers) -> int | None:
    """The declared length of the body, or None when it comes in chunks."""
    value = find(headers, b"content-length")
    return int(value) if value is not None and value.isdigit() else None


def retry_after(seconds: float) -> Mapping[bytes, bytes]:
    """The header that says when to come back."""
    return {b"retry-after": str(max(1, ceil(seconds))).encode()}


def _named_by_connection(headers: Headers) -> set[bytes]:
    """RFC 9110 7.6.1: headers that `Connection` names go no further than one hop."""
    return {
        token.strip().lower()
        for key, value in headers
        if key == b"connection"
        for token in value.split(b",")
        if token
    }
