"""What a media file holds, read from its headers and tables. Nothing is decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["image", "video", "audio", "unknown"]

PROBLEMS = {
    "empty": "it has no bytes",
    "not_base64": "it is not valid base64",
    "unknown_format": "its bytes are of no known kind",
    "unsupported": "it is of a kind that is not read",
    "truncated": "it is cut off before its end",
    "damaged": "its headers contradict each other",
}
"""Why a file cannot be used, by code."""


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
    """EXIF's 1..8, of a clip by its matrix. From 5 on, width and height change places."""
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
