"""Which turns of a conversation decide on its route.

A chat sends the whole conversation each time, so a picture of the first turn comes along for ever. It counts
in the turn in which it was shown and while questions about it are likely: for `media_turns` turns of the
user, counted from the last. What an assistant or a tool showed belongs to the turn of the user before it, so
the screenshots of an agent at work always count. What a system message shows counts always: it is part of
the instructions. A later conversation that is text alone goes the way of text again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dabom.gateway.routing.settings import Modality

_ALWAYS = frozenset({"system", "developer"})


class Turn(Protocol):
    """What is known of one message."""

    @property
    def role(self) -> str: ...
    @property
    def kinds(self) -> frozenset[Modality]: ...


def first_that_counts(messages: Sequence[Turn], media_turns: int) -> int:
    """The number of the first message that counts: that of the user who began the last `media_turns`."""
    left = media_turns
    for number in range(len(messages) - 1, -1, -1):
        if messages[number].role == "user":
            left -= 1
            if not left:
                return number
    return 0


def counts(messages: Sequence[Turn], number: int, first: int) -> bool:
    """Whether what one message shows decides on the route."""
    return number >= first or messages[number].role in _ALWAYS


def modalities(messages: Sequence[Turn], media_turns: int) -> tuple[frozenset[Modality], frozenset[Modality]]:
    """What counts, and what only older turns hold."""
    if not any(message.kinds for message in messages):
        return frozenset(), frozenset()
    first = first_that_counts(messages, media_turns)
    now: set[Modality] = set()
    old: set[Modality] = set()
    for number, message in enumerate(messages):
        (now if counts(messages, number, first) else old).update(message.kinds)
    return frozenset(now), frozenset(old - now)
