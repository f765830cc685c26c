"""One decoding pass over a recording that gives the pictures and the sound of every window of a cut."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import av

from dabom.media.drawing import Canvas, Deinterlacer
from dabom.media.grid import ROUNDING_S, Grid, Place
from dabom.media.hearing import Heard, Hearing
from dabom.media.recording import open_recording, picture_track

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from fractions import Fraction
    from pathlib import Path

    from dabom.media.recording import Recording, SoundTrack
    from dabom.media.shape import Shape

_LISTED_PREROLL_S, _PREROLL_S = 1.0, 15.0
"""How far before the first window the pass begins; without a list of places, a seek may miss a key frame."""
_SKIPPING = frozenset({"h264", "hevc"})
"""Codings of which FFmpeg tells frames that no other refers to."""
_LAG_S = 10.0
"""Sound this far behind the picture has stopped."""


class Shown(NamedTuple):
    """Picture `number` of a window: a frame of the shape's size. The same frame may come more than once."""

    window: int
    number: int
    frame: Any


Event: TypeAlias = "Shown | Heard"


@dataclass
class Notes:
    """What a pass met: windows that are damaged, begin late, hold a frame over a hole, or end short."""

    grid: Grid
    damaged: set[int] = field(default_factory=set)


class _TooLate(Exception):
    """The seek arrived behind the first window: its first frame cannot be decoded from there."""


def decode_windows(
    path: Path, recording: Recording, sound: SoundTrack | None, shape: Shape, starts: Sequence[float]
) -> tuple[Notes, Generator[Event, None, None]]:
    """The events of one pass over the windows that begin at `starts`, ascending, in seconds.

    Pictures of a window come in order. Its sound comes once, when it is whole, before or after them. Windows
    that the recording does not reach get no picture. Walking the events raises InvalidMedia.
    """
    notes = Notes(Grid(starts, shape.fps, shape.frames, shape.native))
    return notes, _events(path, recording, sound, shape, notes)


def _events(
    path: Path, recording: Recording, sound: SoundTrack | None, shape: Shape, notes: Notes
) -> Generator[Event, None, None]:
    starts = notes.grid.starts
    preroll = _LISTED_PREROLL_S if recording.listed else _PREROLL_S
    while True:
        target = starts[0] - preroll
        with open_recording(path) as container:
            if target > 0:
                container.seek(int((target + recording.origin_s) * av.time_base), backward=True)
            walk = _Walk(container, recording, sound, shape, notes)
            try:
                with closing(walk.events(may_be_late=target <= 0)) as events:
                    yield from events
                return
            except _TooLate:
                preroll *= 2


class _Walk:
    """One walk through the packets of an open recording."""

    def __init__(
        self, container: Any, recording: Recording, sound: SoundTrack | None, shape: Shape, notes: Notes
    ) -> None:
        self._container, self._origin_s, self._notes = container, recording.origin_s, notes
        self._grid = notes.grid
        self._picture = picture_track(container)
        self._sound = container.streams[sound.index] if sound else None
        starts = self._grid.starts
        self._hearing = Hearing(starts, shape.seconds, shape.rate, shape.channels) if sound else None
        self._canvas = Canvas(recording, shape) if self._picture is not None else None
        self._weave = Deinterlacer() if recording.interlaced else None
        self._step_s = float(1 / recording.fps) if recording.fps else 0.0
        self._shown: Any = None
        self._shown_s: float | None = None
        self._may_be_late = True
        self._frugal = self._picture is not None and not shape.native and may_skip(container, recording)
        self._skips = False
        if self._picture is not None:
            self._picture.thread_type = "AUTO"

    def events(self, may_be_late: bool) -> Generator[Event, None, None]:
        """Everything that the windows get. Raises _TooLate before the first of them."""
        self._may_be_late = may_be_late
        waiting: list[Event] = []
        for packet in self._packets():
            waiting.extend(self._taken(packet))
            if may_be_late or self._shown is not None or self._picture is None:
                yield from waiting
                waiting.clear()
            if self._is_over():
                break
        yield from waiting
        if not self._grid.done:
            yield from self._last_pictures()
        if self._hearing is not None:
            yield from self._hearing.rest()

    def _packets(self) -> Iterator[Any]:
        tracks = [track for track in (self._picture, self._sound) if track is not None]
        packets = self._container.demux(tracks)
        while True:
            try:
                yield next(packets)
            except StopIteration:
                return
            except av.FFmpegError:
                self._notes.damaged.add(self._grid.window)
                return

    def _taken(self, packet: Any) -> Iterator[Event]:
        heard = self._sound is not None and packet.stream_index == self._sound.index
        if not heard and self._grid.done:
            yield from self._waited(self._time(packet.dts, packet.time_base))
            return
        if not heard and self._frugal:
            self._choose_skip(packet)
        try:
            frames = packet.decode()
        except (av.FFmpegError, ValueError):
            self._notes.damaged.add(self._grid.window)
            return
        for frame in frames:
            if heard:
                yield from self._listened(frame)
            else:
                for whole in (frame,) if self._weave is None else self._weave.take(frame):
                    yield from self._pictured(whole)

    def _choose_skip(self, packet: Any) -> None:
        """Let the decoder pass over a frame that no place needs and no other frame refers to."""
        time_s = self._time(packet.pts, packet.time_base)
        wanted = time_s is None or self._grid.wants(time_s, self._step_s)
        if wanted == self._skips:
            self._skips = not wanted
            self._picture.codec_context.skip_frame = "NONREF" if self._skips else "DEFAULT"

    def _listened(self, frame: Any) -> Iterator[Event]:
        time_s = self._time(frame.pts, frame.time_base)
        if self._hearing is not None and time_s is not None and not self._hearing.done:
            yield from self._hearing.take(frame, time_s)

    def _pictured(self, frame: Any) -> Iterator[Event]:
        time_s = self._time(frame.pts, frame.time_base)
        if time_s is None:
            time_s = 0.0 if self._shown_s is None else self._shown_s + self._step_s
        if self._shown_s is None:
            if not self._may_be_late and time_s > self._grid.starts[0] + ROUNDING_S:
                raise _TooLate
            places = self._grid.before(time_s, None, 0.0)
            self._shown, self._shown_s = frame, time_s
            yield from self._placed(places)
        elif time_s > self._shown_s:
            yield from self._placed(self._grid.before(time_s, self._shown_s, self._lasts_s()))
            self._shown, self._shown_s = frame, time_s
        yield from self._waited(time_s)

    def _placed(self, places: list[Place]) -> Iterator[Event]:
        if not places or self._canvas is None:
            return
        if self._shown.is_corrupt:
            self._notes.damaged.update(place.window for place in places)
        drawn = self._canvas.draw(self._shown)
        for place in places:
            yield Shown(*place, drawn)

    def _last_pictures(self) -> Iterator[Event]:
        if self._picture is not None:
            for frame in self._left():
                yield from self._pictured(frame)
        if self._shown_s is not None:
            yield from self._placed(self._grid.at_end(self._shown_s, self._lasts_s()))

    def _left(self) -> Iterator[Any]:
        """Frames that decoder and deinterlacer still hold."""
        try:
            held = self._picture.codec_context.decode(None)
        except (av.FFmpegError, EOFError):
            held = []  # it was emptied at the end of the file
        for frame in held:
            yield from (frame,) if self._weave is None else self._weave.take(frame)
        if self._weave is not None:
            yield from self._weave.rest()

    def _waited(self, time_s: float | None) -> Iterator[Event]:
        if self._hearing is not None and time_s is not None:
            yield from self._hearing.give_up(time_s - _LAG_S)

    def _is_over(self) -> bool:
        no_picture = self._picture is None or self._grid.done
        return no_picture and (self._hearing is None or self._hearing.done)

    def _lasts_s(self) -> float:
        lasts = self._shown.duration
        if not lasts or self._shown.time_base is None:
            return self._step_s
        return float(lasts * self._shown.time_base)

    def _time(self, ticks: int | None, base: Fraction | None) -> float | None:
        return None if ticks is None or base is None else float(ticks * base) - self._origin_s


def may_skip(container: Any, recording: Recording) -> bool:
    """Frames may be passed over undecoded: their times are sure, because the rate is one and the same.

    FFmpeg tells so of MP4 and QuickTime by an average rate that is the finest rate, too.
    """
    track = picture_track(container)
    sure = container.format.name.startswith("mov") and track.average_rate == track.base_rate
    return sure and not recording.interlaced and track.codec_context.name in _SKIPPING
