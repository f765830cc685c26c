"""The media of a request on their way: read once, then made to fit each target that is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dabom.errors import MediaTooLarge, UrlRefused
from dabom.gateway.facts import MAX_LOOKS, MAX_MEDIA
from dabom.gateway.media_plan import LOW
from dabom.gateway.media_policy import Edited, MediaPolicy, target_of
from dabom.media.sources import Pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dabom.gateway.facts import Facts
    from dabom.gateway.media_options import MediaOptions
    from dabom.gateway.media_plan import MediaTarget, Part
    from dabom.gateway.media_settings import MediaSettings
    from dabom.gateway.metrics import Metrics
    from dabom.gateway.upstream import Upstream


@dataclass(frozen=True, slots=True)
class Shown:
    """The media parts of one body, and what the request says about its clips."""

    parts: tuple[Part, ...]
    options: MediaOptions
    pieces: Pieces


class Viewer:
    """Looks at the media of requests by the policy of one set of settings; `close` it."""

    def __init__(self, settings: MediaSettings, metrics: Metrics) -> None:
        self._policy = MediaPolicy(settings)
        self._metrics = metrics
        self._targets: dict[tuple[str, str, int | None], MediaTarget] = {}

    async def close(self) -> None:
        """End the processes that scale pictures."""
        await self._policy.close()

    async def look(
        self, facts: Facts, body: Sequence[bytes | memoryview], options: Callable[[], MediaOptions]
    ) -> Shown | None:
        """What a body shows; None when that is nothing. Raises `InvalidMedia` for what nobody can take."""
        if facts.unread:
            raise MediaTooLarge(
                f"the request has more than {MAX_MEDIA:,} media parts, or media behind {MAX_LOOKS:,} "
                "messages and parts; send fewer",
                param="messages",
            )
        if not facts.media:
            return None
        pieces = Pieces(body)
        try:
            parts = await self._policy.read(pieces.read, facts.media, facts.places)
        except UrlRefused as refused:
            self._metrics.fetches.add(refused.code)
            raise
        if fetched := sum(bool(part.fetched) for part in parts):
            self._metrics.fetches.add("ok", by=fetched)
        return Shown(parts, options(), pieces)

    async def fit(
        self, shown: Shown, facts: Facts, target: Upstream, route: str, max_pixels: int | None
    ) -> Edited:
        """What changes for one target, which gets the media of `facts`: perhaps not all that are shown.

        Raises `ClientError` when they cannot be made to fit.
        """
        parts = shown.parts
        if len(parts) != len(facts.media):
            kept = {place.start for place in facts.places}
            parts = tuple(part for part in parts if part.start in kept)
        family = target.meter.family  # learned from the upstream when no setting names it
        key = (target.name, family.name if family is not None else "", max_pixels)
        wanted = self._targets.get(key)
        if wanted is None:
            wanted = self._targets[key] = target_of(target.settings, family, max_pixels)
        edited = await self._policy.fit(shown.pieces.read, parts, shown.options, wanted)
        if edited.edits:
            self._count(parts, edited, route)
        return edited

    def _count(self, parts: Sequence[Part], edited: Edited, route: str) -> None:
        scaled = {(part.start, part.end): part for part in parts if part.kind == "image"}
        for edit in edited.edits:
            part = scaled.get((edit.start, edit.end))
            if part is None or edit.text == part.fetched:
                continue
            self._metrics.normalised.add(route, LOW if part.detail == LOW else "scaled")
            before = len(part.fetched) or edit.end - edit.start
            for kind, chars in (("before", before), ("after", len(edit.text))):
                self._metrics.picture_bytes.add(kind, by=chars * 3 // 4)
