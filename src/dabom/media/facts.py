"""What a media file holds, read from its headers and tables. Nothing is decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Kind = Literal["image", "video", "audio", "unknown"]


class Source(Protocol):
    """Random access to the bytes of one file."""

    @property
    def size(self) -> int:
        """Bytes in all."""

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer at the end, none beyond it."""


@dataclass(frozen=True, slots=True)
class MediaFacts:
    """One picture, clip or sound.

    Numbers are 0 where the kind has none. `estimated` says that a number could only be guessed, and `problem`
    why the file cannot be used at all: one of the codes of `PROBLEMS`, or empty.
    """

    kind: Kind
    mime: str = ""
    width: int = 0
    """Pixels as stored; `orientation` is not applied to them."""
    height: int = 0
    orientation: int = 1
    """EXIF's 1..8; for a clip 1, 3, 6 or 8 from its matrix. From 5 on, width and height change places."""
    frames: int = 0
    """Presentable frames of a clip; of a picture 1, more when it is animated or has pages."""
    fps: float = 0.0
    """Frames a second on average, FFmpeg's `avg_frame_rate`."""
    seconds: float = 0.0
    audio_samples: int = 0
    """Samples per channel as FFmpeg decodes them; 0 when there is no sound track."""
    audio_rate: int = 0
    estimated: bool = False
    problem: str = ""
    vfr: bool = False
    """The frames of a clip do not all last equally long."""

    @property
    def upright(self) -> tuple[int, int]:
        """Width and height as the picture is shown."""
        return (self.height, self.width) if self.orientation >= 5 else (self.width, self.height)


def read_facts(source: Source) -> MediaFacts:
    """The facts of one file. Never raises on bad bytes; `problem` says what is wrong."""
    return MediaFacts("unknown", problem="unknown_format" if source.size else "empty")
