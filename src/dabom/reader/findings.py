"""What was measured, as plain values that cross a process boundary."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class TextLine(msgspec.Struct, frozen=True):
    """One line of text; `box` is left, top, right, bottom in pixels, `confidence` 0..100."""

    text: str
    box: tuple[int, int, int, int]
    confidence: float


class Light(msgspec.Struct, frozen=True):
    """How a picture looks: brightness, contrast and shares are 0..1, sharpness the Laplacian's variance."""

    brightness: float
    contrast: float
    sharpness: float
    colours: list[tuple[str, float]]
    black: bool
    blank: bool


class Look(msgspec.Struct, frozen=True, tag="picture"):
    """A still picture."""

    width: int
    height: int
    format: str
    frames: int
    light: Light
    lines: list[TextLine]


class Caption(msgspec.Struct, frozen=True):
    """Text that was seen from `start_s` to `end_s`; `box` in pixels of the frame."""

    text: str
    start_s: float
    end_s: float
    box: tuple[int, int, int, int]
    confidence: float


class Span(msgspec.Struct, frozen=True):
    """A stretch of time in seconds."""

    start_s: float
    end_s: float


class Heard(msgspec.Struct, frozen=True, tag="sound"):
    """A sound; levels in dBFS, None for digital silence; `transcript` None when nobody transcribed."""

    duration_s: float
    rate_hz: int
    channels: int
    codec: str
    whole: bool
    loudness_dbfs: float | None
    peak_dbfs: float | None
    silence_share: float
    silences: list[Span]
    speech: list[Span]
    transcript: str | None


class Watched(msgspec.Struct, frozen=True, tag="video"):
    """A video. `heard` is None when the sound was not asked for or is not there (`has_sound` tells)."""

    duration_s: float
    width: int
    height: int
    fps: float | None
    decoded: int
    sampled: int
    light: Light
    black_frames: int
    cuts_s: list[float]
    motion: float
    captions: list[Caption]
    text_complete: bool
    whole: bool
    has_sound: bool
    sound_asked: bool
    heard: Heard | None


Finding: TypeAlias = Look | Watched | Heard


class MediaPart(msgspec.Struct, frozen=True):
    """One media part: `kind` is picture, video or sound; `source` a data: URI or plain base64."""

    kind: str
    source: str
    is_uri: bool = True


class Job(msgspec.Struct, frozen=True):
    """What a worker is asked: look at `parts` and write the answer in `language` (ko or en)."""

    parts: list[MediaPart]
    language: str
    fps: float = 2.0
    num_frames: int | None = None
    duration_s: float | None = None
    sound_asked: bool = False
    json_mode: bool = False
    schema: bytes = b""


class Reading(msgspec.Struct, frozen=True):
    """A worker's answer: the text and the media's token count, or what is wrong with the request.

    `param` names the part of the request at fault, `broken` says that the fault is the reader's own.
    """

    content: str = ""
    media_tokens: int = 0
    fault: str | None = None
    param: str | None = None
    broken: bool = False
