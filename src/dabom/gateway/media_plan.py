"""What the gateway does with the media of one request: decided from their facts, nothing read or opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dabom.errors import InvalidMedia, MediaMismatch, MediaTooLarge, MediaUnsupported
from dabom.gateway.media_options import Listener, MediaOptions, judge_options
from dabom.media.values import PROBLEMS, MediaFacts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from dabom.errors import ClientError
    from dabom.gateway.media_settings import MediaSettings

LOW = "low"
LOW_DETAIL_PIXELS = 512 * 512
"""The pixels of a picture with `detail: low`: OpenAI's own low detail is a square of 512."""
_NAMES = {"image": "pictures", "video": "clips", "audio": "sounds"}
_ALIASES = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "image/x-ms-bmp": "image/bmp",
    "image/tif": "image/tiff",
    "image/heif": "image/heic",
}


@dataclass(frozen=True)
class Part:
    """One media part. `start` to before `end` is its text in the body, without the quotes.

    `fetched` is a data URI that takes the place of that text. `foreign`: the text is neither a data URI nor
    base64, and an upstream might take it for a place from where to load something.
    """

    number: int
    kind: str
    facts: MediaFacts
    start: int
    end: int
    declared: str = ""
    detail: str = ""
    foreign: bool = False
    fetched: bytes = b""


@dataclass(frozen=True)
class MediaTarget:
    """What the target of a request wants: at most `max_pixels` a picture, sides in multiples of `factor`."""

    max_pixels: int | None = None
    factor: int = 1
    listener: Listener = field(default_factory=Listener)


@dataclass(frozen=True)
class Scale:
    """A picture that is to be scaled down."""

    part: Part
    max_pixels: int


@dataclass(frozen=True)
class Plan:
    """What is done: pictures to scale, options to change, what the client is told, or why it is refused."""

    scales: tuple[Scale, ...] = ()
    changes: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    refusal: ClientError | None = None


def count_flaw(kinds: Sequence[str], settings: MediaSettings) -> ClientError | None:
    """Whether a request has too many pictures, clips or sounds."""
    limits = {"image": settings.max_images, "video": settings.max_videos, "audio": settings.max_sounds}
    for kind, limit in limits.items():
        found = sum(kind == one for one in kinds)
        if limit is not None and found > limit:
            return MediaTooLarge(
                f"the request has {found:,} {_NAMES[kind]}; the limit is {limit:,}", param="messages"
            )
    return None


def flaw(part: Part, settings: MediaSettings) -> ClientError | None:
    """Why a part is refused, or None. What a `file` part holds is the upstream's affair."""
    facts, name = part.facts, f"media part {part.number + 1}"
    if part.foreign:
        return InvalidMedia(f"{name} is no data: URL and not valid base64", param="messages")
    if part.kind == "file" or not settings.check:
        return _too_large(name, facts, settings)
    if facts.problem == "empty":
        return InvalidMedia(f"{name} is empty: 0 bytes", param="messages")
    if facts.problem == "unknown_format" and part.kind != "image":
        return None  # there are more kinds of clips and sounds than are known here
    if facts.kind not in {part.kind, "unknown"} and not _goes_as(part.kind, facts):
        return MediaMismatch(
            f"{name} is declared as {part.declared or part.kind} and holds {facts.mime}", param="messages"
        )
    if facts.problem in {"unsupported", "unknown_format"}:
        return MediaUnsupported(
            f"{name} is {facts.mime or 'of no known kind'}; send PNG, JPEG or WebP", param="messages"
        )
    if facts.problem:
        return InvalidMedia(f"{name} cannot be used: {PROBLEMS[facts.problem]}", param="messages")
    if _differ(part.declared, facts.mime):
        return MediaMismatch(
            f"{name} is declared as {part.declared} and holds {facts.mime}; name the type it has",
            param="messages",
        )
    if part.kind == "image" and facts.frames > 1:
        return MediaUnsupported(
            f"{name} has {facts.frames} frames or pages; send a still picture, or a clip as video_url",
            param="messages",
        )
    return _too_large(name, facts, settings)


def _too_large(name: str, facts: MediaFacts, settings: MediaSettings) -> ClientError | None:
    pixels = facts.width * facts.height
    if pixels <= settings.max_decoded_pixels:
        return None
    return MediaTooLarge(
        f"{name} has {facts.width:,} x {facts.height:,} = {pixels:,} pixels; the limit is "
        f"{settings.max_decoded_pixels:,}",
        param="messages",
    )


def _goes_as(kind: str, facts: MediaFacts) -> bool:
    """A moving picture may be sent as a clip, and the sound of a clip as a sound."""
    if kind == "video":
        return facts.mime in {"image/gif", "image/webp", "image/png"} and facts.frames > 1
    return kind == "audio" and facts.kind == "video" and (facts.audio_rate > 0 or facts.estimated)


def _differ(declared: str, found: str) -> bool:
    """Whether a declared picture type is another than the one found. Of clips and sounds the names vary."""
    declared = _ALIASES.get(declared, declared)
    if not declared.startswith("image/") or declared == "image/*":
        return bool(declared) and "/" in declared and _family(declared) not in {"", _family(found)}
    return declared != found


def _family(mime: str) -> str:
    kind = mime.partition("/")[0]
    # a container may be called a clip or a sound, whatever it holds
    return {"image": "image", "video": "moving", "audio": "moving"}.get(kind, "")


def plan(parts: Sequence[Part], options: MediaOptions, target: MediaTarget, settings: MediaSettings) -> Plan:
    """What is done for one target. The parts have no flaw of their own."""
    clips = [part for part in parts if part.kind == "video"]
    silent = [part.number for part in clips if is_silent(part.facts)]
    verdict = judge_options(options, len(clips), silent, target.listener, settings.omni)
    scales = tuple(_scales(parts, target)) if settings.normalise else ()
    return Plan(scales, verdict.changes, verdict.warnings, verdict.refusal)


def is_silent(facts: MediaFacts) -> bool:
    """Whether a clip is known to have no sound track."""
    known = facts.mime in {"video/mp4", "video/quicktime", "video/jpeg", "image/gif"}
    return known and not facts.problem and not facts.audio_rate


def _scales(parts: Sequence[Part], target: MediaTarget) -> list[Scale]:
    found = []
    for part in parts:
        limits = [target.max_pixels] if target.max_pixels is not None else []
        if part.detail == LOW:
            limits.append(LOW_DETAIL_PIXELS)
        pixels = part.facts.width * part.facts.height
        if part.kind == "image" and part.facts.kind == "image" and limits and pixels > min(limits):
            found.append(Scale(part, min(limits)))
    return found
