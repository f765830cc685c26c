"""Video: cuts, motion, light, text over time, and the sound when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dabom.errors import InvalidMedia
from dabom.media import open_pictures, open_video, read_sound
from dabom.reader.captions import CaptionTracker
from dabom.reader.findings import Light, Watched
from dabom.reader.light import average_light, measure_light

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dabom.media import Frame, Sampling, Video
    from dabom.reader.listening import Listener
    from dabom.reader.text import TextReader

_COMPARE_STEP_S = 1 / 31
_CUT_LEVEL = 14.0
_CUT_RATIO = 3.5
_CUT_REST_S = 0.3
_NEIGHBOURS = 6


class _Watch:
    """What is collected while the frames go by."""

    def __init__(self, reader: TextReader) -> None:
        self.tracker = CaptionTracker(reader)
        self.lights: list[Light] = []
        self.times: list[float] = []
        self.changes: list[float] = []
        self.decoded = 0
        self.end_s = 0.0
        self._last: np.ndarray[tuple[int, ...], np.dtype[np.int16]] | None = None

    def add(self, frame: Frame) -> None:
        self.decoded += 1
        step = frame.time_s - self.end_s
        if self._last is None or frame.time_s - (self.times[-1] if self.times else 0.0) >= _COMPARE_STEP_S:
            small = frame.thumbnail().astype(np.int16)
            if self._last is not None:
                self.times.append(frame.time_s)
                self.changes.append(float(np.abs(small - self._last).mean()))
            self._last = small
        if frame.sampled:
            image = frame.picture()
            light = measure_light(image)
            self.lights.append(light)
            self.tracker.add(image, frame.time_s)
        self.end_s = frame.time_s if frame.index == 0 else max(self.end_s, frame.time_s)
        self.step_s = max(step, 0.0) or 0.04


def watch(content: bytes, sampling: Sampling, reader: TextReader, listener: Listener | None) -> Watched:
    """Look at a video file; `listener` is given when the sound is asked for."""
    sound = (content, listener) if listener else None
    with open_video(content, sampling) as video:
        return _measure(video, reader, sound, sound_asked=listener is not None)


def watch_pictures(
    contents: Sequence[bytes], fps: float, reader: TextReader, *, sound_asked: bool
) -> Watched:
    """Look at a video that comes as a list of pictures, `fps` of them a second."""
    return _measure(open_pictures(contents, fps), reader, None, sound_asked=sound_asked)


def _measure(
    video: Video, reader: TextReader, sound: tuple[bytes, Listener] | None, *, sound_asked: bool
) -> Watched:
    seen = _Watch(reader)
    for frame in video.frames:
        seen.add(frame)
    if not seen.lights:
        raise InvalidMedia("video is damaged: no frame could be decoded")
    shown_s = seen.end_s + seen.step_s
    stated = video.stated_duration_s
    # The container may state more than there is: a file that was cut off.
    whole = not video.faults and (stated is None or shown_s > stated - 1.0)
    duration = stated if stated and whole else shown_s
    track = read_sound(sound[0]) if sound and video.has_sound else None
    step = duration / max(1, len(seen.lights))
    cuts = find_cuts(seen.times, seen.changes)
    return Watched(
        duration_s=round(duration, 2),
        width=video.width,
        height=video.height,
        fps=round(video.fps, 2) if video.fps and video.fps < 240 else round(seen.decoded / shown_s, 2),
        decoded=seen.decoded,
        sampled=len(seen.lights),
        light=average_light(seen.lights),
        black_frames=sum(light.black for light in seen.lights),
        cuts_s=cuts,
        motion=round(float(np.median(seen.changes)), 2) if seen.changes else 0.0,
        captions=seen.tracker.captions(step, duration, cuts),
        text_complete=seen.tracker.complete,
        whole=whole,
        has_sound=video.has_sound,
        sound_asked=sound_asked,
        heard=sound[1].listen(track) if sound and track else None,
    )


def find_cuts(times: Sequence[float], changes: Sequence[float]) -> list[float]:
    """Times of hard cuts: a change far above that of the frames around it."""
    cuts: list[float] = []
    for at, change in enumerate(changes):
        around = [*changes[max(0, at - _NEIGHBOURS) : at], *changes[at + 1 : at + 1 + _NEIGHBOURS]]
        usual = float(np.median(around)) if around else 0.0
        if change < _CUT_LEVEL or change < _CUT_RATIO * usual + 4.0:
            continue
        if not cuts or times[at] - cuts[-1] >= _CUT_REST_S:
            cuts.append(round(times[at], 2))
    return cuts
