"""The headers of a request's media, read where they stand in its body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dabom.media import MediaFacts, read_text_facts
from dabom.media.sources import Pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dabom.gateway.facts import Facts
    from dabom.gateway.parts import Place

MOST_READ = 64
"""Media of one request whose headers are read; more than any model takes."""


def read_contents(facts: Facts, body: Sequence[bytes | memoryview]) -> tuple[MediaFacts | None, ...]:
    """One value for each of `facts.media`; None for those that are not in the body.

    Nothing is decoded but the few kilobytes of base64 that hold headers and tables.
    """
    if not facts.media:
        return ()
    pieces = Pieces(body)
    return tuple(
        None if medium.remote or index >= MOST_READ else _read(pieces, facts.places[index])
        for index, medium in enumerate(facts.media)
    )


def _read(pieces: Pieces, place: Place) -> MediaFacts:
    def text(start: int, end: int) -> bytes:
        return pieces.read(place.start + start, place.start + end)

    return read_text_facts(text, place.end - place.start)[1]
