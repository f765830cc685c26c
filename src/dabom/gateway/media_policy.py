"""The media of a request read, checked and changed: only the spans that must change are written anew.

    policy = MediaPolicy(settings)                                     # for each set of settings; `close` it
    parts = await policy.read(pieces.read, facts.media, facts.places)  # refuses what no target can take
    edited = await policy.fit(pieces.read, parts, options, target)     # for the target that was chosen
    body = splice(chunks, edited.edits)                                # `gateway.splice`

`fit` changes nothing that it was given: for another target it is asked again. Parts that another edit takes
out of the body are left out of `parts`.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from dabom.errors import InvalidMedia, UrlRefused
from dabom.families import read_options
from dabom.gateway.media_options import LOADER, PROCESSOR, Listener
from dabom.gateway.media_plan import MediaTarget, Part, count_flaw, flaw, plan
from dabom.gateway.splice import Edit
from dabom.media.facts import read_text_facts
from dabom.media.fetch import FetchRules, Room, fetch
from dabom.media.sources import Pieces, unescape
from dabom.media.values import MediaFacts
from dabom.media.worker import Job
from dabom.media.workers import PictureWorkers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from dabom.families import Family, Options
    from dabom.gateway.facts import Facts
    from dabom.gateway.media_options import MediaOptions
    from dabom.gateway.media_plan import Scale
    from dabom.gateway.media_settings import MediaSettings
    from dabom.gateway.parts import Media, Place
    from dabom.gateway.settings import UpstreamSettings
    from dabom.media.sources import ReadText

HEADER = b"x-dabom-media"
_URL_CHARS = 4096
_HEAD_CHARS = 512
_JSON_ESCAPE = re.compile(rb"\\(?:u00([0-7][0-9a-fA-F])|u[0-9a-fA-F]{0,3}\Z|.|\Z)", re.DOTALL)
_NAMED = {b"/": b"/", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"f": b"\f", b"b": b"\b"}
_BLANKS = bytes(range(0x21))
"""What parsers of URLs skip, some at the start and some anywhere."""
_BASE64 = re.compile(rb"[A-Za-z0-9+/=_-]*")
_TURN_S = 0.004
"""For how long parts are read before other requests have a turn."""
_PIECE_CHARS = 256 * 1024
_MAX_TOLD = 32
_FETCHES = 4


@dataclass(frozen=True)
class Edited:
    """What is changed in the body, and the facts of the parts as the target will see them.

    `header` is the value of `X-Dabom-Media`, empty when there is nothing to tell. `options` are those that
    the target will read; None when they are the request's own.
    """

    edits: tuple[Edit, ...]
    facts: tuple[MediaFacts, ...]
    header: str
    options: Options | None = None

    def of(self, facts: Facts) -> Facts:
        """The facts of the request as the target will read it."""
        return facts if self.options is None else msgspec.structs.replace(facts, options=self.options)


class MediaPolicy:
    """Reads, checks and changes media by its settings. Holds the processes that scale pictures."""

    def __init__(self, settings: MediaSettings) -> None:
        self._settings = settings
        self._rules = FetchRules(settings.allow, settings.max_fetch_bytes, settings.fetch_timeout_s)
        self._workers = PictureWorkers(settings.workers, settings.scale_timeout_s)

    async def close(self) -> None:
        """End the processes."""
        await self._workers.close()

    async def read(
        self, read_text: ReadText, media: Sequence[Media], places: Sequence[Place]
    ) -> tuple[Part, ...]:
        """The facts of all parts; outside URLs are fetched. Raises InvalidMedia for what nobody can take."""
        refusal = count_flaw([one.kind for one in media], self._settings)
        if refusal is not None:
            raise refusal
        parts: list[Part] = []
        outside: list[tuple[Part, str]] = []
        loop = asyncio.get_running_loop()
        turn = loop.time()
        for number, (one, place) in enumerate(zip(media, places, strict=True)):
            if loop.time() - turn > _TURN_S:
                await asyncio.sleep(0)
                turn = loop.time()
            part, url = read_part(read_text, number, one, place)
            parts.append(part)
            if url:
                outside.append((part, url))
        for part, fetched in zip([part for part, _ in outside], await self._fetch_all(outside), strict=True):
            parts[part.number] = fetched
        for part in parts:
            refusal = flaw(part, self._settings)
            if refusal is not None:
                raise refusal
        return tuple(parts)

    async def fit(
        self, read_text: ReadText, parts: Sequence[Part], options: MediaOptions, target: MediaTarget
    ) -> Edited:
        """What must change for a target. Raises InvalidMedia or ClientError when it cannot be made to fit."""
        decided = plan(parts, options, target, self._settings)
        if decided.refusal is not None:
            raise decided.refusal
        texts = {part.number: part.fetched for part in parts if part.fetched}
        facts = {part.number: part.facts for part in parts}
        told = [f"{part.number};fetched={part.facts.mime}" for part in parts if part.fetched]
        for scale in decided.scales:
            number = scale.part.number
            texts[number], was, facts[number] = await self._scale(read_text, scale, target)
            now = facts[number].upright
            told.append(f"{number};was={was[0]}x{was[1]};now={now[0]}x{now[1]}")
        edits = [Edit(part.start, part.end, texts[part.number]) for part in parts if part.number in texts]
        told += [f"warning={word}" for word in decided.warnings]
        more = [f"more={len(told) - _MAX_TOLD}"] if len(told) > _MAX_TOLD else []
        return Edited(
            (*edits, *_option_edits(options, decided.changes)),
            tuple(facts.values()),
            ", ".join(told[:_MAX_TOLD] + more),
            _options_left(options, decided.changes),
        )

    async def _fetch_all(self, outside: Sequence[tuple[Part, str]]) -> list[Part]:
        permits, room = asyncio.Semaphore(_FETCHES), Room(self._rules.max_bytes)

        async def one(part: Part, url: str) -> Part:
            async with permits:
                found = await fetch(url, self._rules, room=room)
            text = found.uri
            declared, facts = read_text_facts(lambda start, end: text[start:end], len(text))
            return replace(part, facts=facts, declared=declared, fetched=text)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(part, url)) for part, url in outside]
        except* UrlRefused as refused:
            raise _first(refused) from None
        return [task.result() for task in tasks]

    async def _scale(
        self, read_text: ReadText, scale: Scale, target: MediaTarget
    ) -> tuple[bytes, tuple[int, int], MediaFacts]:
        """The data URI of a smaller picture, the upright size that it had, and its facts.

        The size is the decoder's: there are more places for an orientation than are read from headers.
        """
        part = scale.part
        read, start, end = read_text, part.start, part.end
        if part.fetched:
            read, start, end = Pieces([part.fetched]).read, 0, len(part.fetched)
        lead = read(start, min(start + _HEAD_CHARS, end))
        wrapped = lead[:5].lower() == b"data:"
        start += lead.find(b",") + 1 if wrapped else 0
        job = Job(end - start, scale.max_pixels, target.factor, self._settings.max_decoded_pixels)
        try:
            done, found = await self._workers.scale(job, _pieces(read, start, end))
        except InvalidMedia as fault:
            raise type(fault)(f"media part {part.number + 1}: {fault.message}", param="messages") from fault
        width, height = done.sides
        facts = MediaFacts("image", done.mime, width, height, frames=1)
        head = b"data:%b;base64," % done.mime.encode() if wrapped else b""
        return head + found, done.was, facts


def target_of(
    settings: UpstreamSettings, family: Family | None, max_pixels: int | None = None
) -> MediaTarget:
    """What an upstream of that family wants; `max_pixels` is the route's own limit."""
    limits = [limit for limit in (max_pixels, settings.max_pixels) if limit is not None]
    return MediaTarget(
        min(limits, default=None),
        family.factor if family is not None else 1,
        Listener(
            vllm=settings.kind == "vllm",
            omni=family is not None and "omni" in family.name,
            trusts_options=settings.trusts_media_options,
        ),
    )


def read_part(read_text: ReadText, number: int, media: Media, place: Place) -> tuple[Part, str]:
    """One part, and its URL when that leads outside. Only what the facts need is read of it."""
    start, end = place.start, place.end
    head = read_text(start, min(start + _HEAD_CHARS, end))
    detail = _detail(read_text, place) if media.kind == "image" else ""
    foreign = False
    if head[:5].lower() != b"data:":
        meant = _JSON_ESCAPE.sub(_meant, head).translate(None, _BLANKS)
        if b":" in meant:
            return Part(number, media.kind, MediaFacts("unknown"), start, end, detail=detail), _url(
                read_text, start, end
            )
        foreign = _BASE64.fullmatch(meant) is None or (not meant and end > start)
    declared, facts = ("", MediaFacts("unknown", problem="not_base64"))
    if b"\\" not in head:
        declared, facts = read_text_facts(lambda a, b: read_text(start + a, start + b), end - start)
    if facts.problem and end > start:
        text = read_text(start, end)
        if b"\\" in text:
            plain = unescape(text)
            declared, facts = read_text_facts(lambda a, b: plain[a:b], len(plain))
    return Part(number, media.kind, facts, start, end, declared, detail, foreign), ""


def _meant(escape: re.Match[bytes]) -> bytes:
    """The character of an escape of JSON; beyond ASCII one that base64 has not; of one that is cut, none."""
    if code := escape[1]:
        return bytes([int(code, 16)])
    return b"" if escape.end() == len(escape.string) else _NAMED.get(escape[0][1:], b"?")


def _url(read_text: ReadText, start: int, end: int) -> str:
    if end - start > _URL_CHARS:
        raise UrlRefused(f"the URL has more than {_URL_CHARS:,} characters")
    try:
        return msgspec.json.decode(b'"%b"' % read_text(start, end), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise UrlRefused("the URL cannot be read") from fault


def _detail(read_text: ReadText, place: Place) -> str:
    """`detail` of a picture: beside its URL, or beside `image_url` in the form of the Responses API."""
    before, after = place.start - place.part_start, place.part_end - place.end
    if before + after > _URL_CHARS:
        return ""
    text = read_text(place.part_start, place.start) + read_text(place.end, place.part_end)
    if b"detail" not in text:
        return ""
    try:
        part = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    inner = part.get("image_url") if isinstance(part, dict) else None
    for found in (inner, part):
        if isinstance(found, dict) and isinstance(found.get("detail"), str):
            return str(found["detail"])
    return ""


def _pieces(read_text: ReadText, start: int, end: int) -> Iterable[memoryview]:
    for place in range(start, end, _PIECE_CHARS):
        yield memoryview(read_text(place, min(place + _PIECE_CHARS, end)))


def _options_left(options: MediaOptions, changes: Mapping[str, Mapping[str, Any] | None]) -> Options | None:
    if not changes:
        return None
    return read_options(changes.get(PROCESSOR, options.processor), changes.get(LOADER, options.loader))


def _option_edits(options: MediaOptions, changes: Mapping[str, object]) -> list[Edit]:
    edits = []
    added = b""
    for name, value in changes.items():
        text = msgspec.json.encode(value)
        if name in options.places:
            edits.append(Edit(*options.places[name], text))
        else:
            added += b'"%b":%b,' % (name.encode(), text)
    if added and options.start is not None:
        edits.append(Edit(options.start, options.start, added))
    return edits


def _first(group: BaseExceptionGroup[UrlRefused]) -> UrlRefused:
    fault = group.exceptions[0]
    return _first(fault) if isinstance(fault, BaseExceptionGroup) else fault
