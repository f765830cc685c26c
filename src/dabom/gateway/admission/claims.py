"""What a request claims of a target, and what stands it has in the line."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from dabom.errors import ClientError
from dabom.gateway import headers as head

if TYPE_CHECKING:
    from dabom.gateway.asgi import Headers

HEADER = b"x-dabom-priority"


class Priority(IntEnum):
    """The lower number goes first."""

    REALTIME = 0
    NORMAL = 1
    BATCH = 2


_BY_NAME = {priority.name.lower().encode(): priority for priority in Priority}


class Claim(NamedTuple):
    """Tokens that a request will hold (prompt and answer), its priority, and the id of its key."""

    tokens: int = 0
    priority: Priority = Priority.NORMAL
    key: str = ""


SMALLEST = Claim()
"""One permit and no tokens, for what has no cost that anyone could tell."""


def read_priority(headers: Headers, own: str | None = None, *, items: bool = False) -> Priority:
    """What `X-Dabom-Priority` asks for, but no higher than `own`, that of the key.

    Without the header it is that of the key, and normal without one; `items` of a batch are batch. Raises
    `ClientError` for a word that is none.
    """
    highest = Priority.REALTIME if own is None else _BY_NAME[own.encode()]
    word = head.find(headers, HEADER)
    if word is None:
        return Priority.BATCH if items else Priority.NORMAL if own is None else highest
    priority = _BY_NAME.get(word.strip().lower())
    if priority is None:
        raise ClientError(
            f"X-Dabom-Priority is {word[:32].decode('ascii', 'replace')}; "
            "send realtime, normal or batch, or leave it out"
        )
    return max(priority, highest)
