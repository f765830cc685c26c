"""A clip on its way: written under a temporary name, measured while it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dabom.media.drawing import fit
from dabom.media.encoding import ClipFile, black
from dabom.media.measuring import Look, Seen, silence_share

if TYPE_CHECKING:
    from pathlib import Path

    from dabom.clips.profiles import Profile
    from dabom.media.hearing import Heard
    from dabom.media.recording import Recording
    from dabom.media.shape import Shape

_SOUND_GAP_S = 0.1


@dataclass(frozen=True)
class Pattern:
    """What every draft of one cut shares."""

    recording: Recording
    profile: Profile
    shape: Shape
    hears: bool

    @property
    def box(self) -> tuple[int, int]:
        """Width and height of the picture inside its black frame."""
        shape = self.shape
        if shape.native or not self.recording.has_picture:
            return shape.width, shape.height
        return fit(self.recording, shape.width, shape.height)


class Draft:
    """One clip that is being written: silence where the recording has no sound, black without picture."""

    def __init__(self, path: Path, pattern: Pattern) -> None:
        self.path = path
        self._pattern = pattern
        self._file = ClipFile(path, pattern.shape, pattern.profile.coding)
        self._look = Look(pattern.box)
        self._silence = 1.0
        self._heard = self._has_sound = False
        self._filled = 0

    @property
    def whole(self) -> bool:
        """Every picture and the sound are there."""
        ready = self._heard or not self._pattern.hears
        return ready and self._file.pictures == self._pattern.shape.frames

    @property
    def has_something(self) -> bool:
        """There is a picture; without a picture track, there is sound."""
        return self._file.pictures > 0

    def picture(self, frame: Any) -> None:
        """The next picture."""
        self._look.at(frame)
        self._file.picture(frame)

    def sound(self, heard: Heard) -> None:
        """The whole sound."""
        self._heard, self._filled = True, heard.filled
        self._silence = silence_share(heard.samples, self._pattern.shape.rate)
        self._file.sound(heard.samples)
        self._has_sound = True
        if not self._pattern.recording.has_picture and heard.filled:
            dark = black(self._pattern.shape.width, self._pattern.shape.height)
            for _ in range(self._pattern.shape.frames):
                self.picture(dark)

    def finish(self) -> tuple[Seen, list[str]]:
        """Write the rest: the shares, and the codes of what had to be added."""
        shape, problems = self._pattern.shape, []
        if self._file.fill():
            problems.append("partial")
        if not self._has_sound:
            self._file.sound(np.zeros((shape.channels, round(shape.seconds * shape.rate)), np.float32))
        self._file.finish()
        lacking = round(shape.seconds * shape.rate) - self._filled
        if not self._pattern.hears:
            problems.append("no_sound")
        elif not self._pattern.recording.has_picture:
            problems.append("no_picture")
        if self._pattern.hears and lacking > _SOUND_GAP_S * shape.rate:
            problems.append("sound_gap")
        return Seen(self._look.black_share, self._look.freeze_share, self._silence), problems

    def abandon(self) -> None:
        """Take the file away."""
        self._file.abandon()
