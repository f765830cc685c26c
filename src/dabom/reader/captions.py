"""Text over time: what is read once is recognised again by its look, not read again."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from dabom.reader.findings import Caption, TextLine
from dabom.reader.regions import Region, find_regions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dabom.reader.text import TextReader

MAX_READS = 100
MAX_FRAME_REGIONS = 16
_SAME_LOOK = 0.9
_SNAP_S = 0.1
_SAME_TEXT = 0.6
_SAME_TEXT_BUT_DIGITS = 0.97
_SAME_BLOCK = 26.0
_LOOK_PX = (96, 16)
_BLOCK_PX = 6
_MIN_CONFIDENCE_ONCE = 75.0


@dataclass(eq=False)
class _Track:
    region: Region
    look: NDArray[np.float32]
    line: TextLine | None
    start_s: float
    last_s: float
    seen: int = 0


class CaptionTracker:
    """Give it the sampled frames in order; `captions` are the texts with the times when they were seen."""

    def __init__(self, reader: TextReader) -> None:
        self._reader = reader
        self._open: list[_Track] = []
        self._closed: list[_Track] = []
        self._reads = 0
        self._size = (0, 0)

    @property
    def complete(self) -> bool:
        """False when there was more text than is read in one video."""
        return self._reads < MAX_READS

    def add(self, image: Image.Image, time_s: float) -> None:
        """Look at one frame."""
        gray = image.convert("L")
        if gray.size != self._size:
            # The boxes of other frames mean nothing in a picture of another size.
            self._closed += self._open
            self._open, self._size = [], gray.size
        still_open: list[_Track] = []
        for region in find_regions(gray, MAX_FRAME_REGIONS):
            look = _look(gray, region)
            track = self._by_look(region, look) or self._by_text(gray, region, look, time_s)
            if track is None or track in still_open:
                continue
            track.last_s, track.seen = time_s, track.seen + 1
            still_open.append(track)
        for track in self._open:
            if track in still_open:
                continue
            # A moving background can hide a caption's region from the detector: the text itself decides.
            if track.line is not None and _looks_same(_look(gray, track.region), track.look):
                track.last_s, track.seen = time_s, track.seen + 1
                still_open.append(track)
            else:
                self._closed.append(track)
        self._open = still_open

    def captions(self, step_s: float, duration_s: float, cuts_s: Sequence[float]) -> list[Caption]:
        """All texts in order of appearance.

        A text is taken to last until the frame in which it was gone; where a cut lies between two sampled
        frames, the text begins or ends with the cut.
        """
        found = []
        for track in [*self._closed, *self._open]:
            line = track.line
            if line is None or (track.seen == 1 and line.confidence < _MIN_CONFIDENCE_ONCE):
                continue
            start_s = next((cut for cut in cuts_s if 0 <= track.start_s - cut < step_s), track.start_s)
            end_s = duration_s if track in self._open else min(duration_s, track.last_s + step_s)
            end_s = next((cut for cut in cuts_s if track.last_s < cut < end_s + _SNAP_S), end_s)
            found.append(Caption(line.text, round(start_s, 2), round(end_s, 2), line.box, line.confidence))
        return sorted(found, key=lambda caption: (caption.start_s, caption.box[1], caption.box[0]))

    def _by_look(self, region: Region, look: NDArray[np.float32]) -> _Track | None:
        for track in self._open:
            if _overlap(track.region, region) > 0.5 and _looks_same(track.look, look):
                return track
        return None

    def _by_text(
        self, gray: Image.Image, region: Region, look: NDArray[np.float32], time_s: float
    ) -> _Track | None:
        if self._reads >= MAX_READS:
            return None
        self._reads += 1
        line = self._reader.read_region(gray, region)
        for track in self._open:
            if line is None or track.line is None or _overlap(track.region, region) <= 0.2:
                continue
            if _reads_same(track.line.text, line.text):
                track.look, track.region = look, region
                track.line = max(track.line, line, key=lambda each: each.confidence)
                return track
        track = _Track(region, look, line, time_s, time_s)
        self._open.append(track)
        return track


def _look(gray: Image.Image, region: Region) -> NDArray[np.float32]:
    crop = gray.crop((region.left, region.top, region.right, region.bottom))
    return np.asarray(crop.resize(_LOOK_PX, Image.Resampling.BOX), np.float32)


def _looks_same(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    """Whether two looks are of the same text: alike as a whole, and nowhere changed, as by another digit."""
    first, second = one - one.mean(), other - other.mean()
    size = float(np.sqrt((first * first).sum() * (second * second).sum()))
    if not size or float((first * second).sum()) / size < _SAME_LOOK:
        return False
    blocks = np.abs(first - second).reshape(_LOOK_PX[1], -1, _BLOCK_PX).mean((0, 2))
    return float(blocks.max()) < _SAME_BLOCK


def _reads_same(one: str, other: str) -> bool:
    """Whether two readings are of one text: nearly alike, and with the same digits."""
    digits = [char for char in one if char.isdigit()] == [char for char in other if char.isdigit()]
    return SequenceMatcher(None, one, other).ratio() >= (_SAME_TEXT if digits else _SAME_TEXT_BUT_DIGITS)


def _overlap(one: Region, other: Region) -> float:
    """Shared area over joint area."""
    width = min(one.right, other.right) - max(one.left, other.left)
    height = min(one.bottom, other.bottom) - max(one.top, other.top)
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    return shared / (one.width * one.height + other.width * other.height - shared)
