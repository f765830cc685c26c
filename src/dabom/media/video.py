"""Video: one decoding pass, with the frames that a request samples marked."""

from __future__ import annotations

import io
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import av
import numpy as np
from PIL import Image

from dabom.errors import InvalidMedia
from dabom.media.containers import open_container
from dabom.media.limits import DEFAULT_FPS, MAX_FRAME_PIXELS, MAX_SAMPLED, MAX_SECONDS
from dabom.media.picture import read_picture

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True)
class Sampling:
    """Which frames to look at: `fps` a second, or `num_frames` spread evenly; at most `max_frames`."""

    fps: float = DEFAULT_FPS
    num_frames: int | None = None
    max_frames: int = MAX_SAMPLED

    def times(self, duration_s: float, step_s: float = 0.0) -> list[float]:
        """Seconds at which a frame is wanted, ascending, at least one; the last frame shows for `step_s`."""
        if self.num_frames is not None:
            count = max(1, min(self.num_frames, self.max_frames))
            last_s = max(0.0, duration_s - step_s)
            return [last_s * index / max(1, count - 1) for index in range(count)]
        count = max(1, int(duration_s * self.fps + 1e-6))
        if count > self.max_frames:
            return [duration_s * index / self.max_frames for index in range(self.max_frames)]
        return [index / self.fps for index in range(count)]


@dataclass(frozen=True)
class Frame:
    """One shown frame. `sampled` says that the request asks to look at it."""

    index: int
    time_s: float
    sampled: bool
    source: Any
    turns: int = 0

    def picture(self, max_pixels: int = 1_000_000) -> Image.Image:
        """The upright frame in RGB, scaled down to at most `max_pixels`."""
        if isinstance(self.source, Image.Image):
            image = self.source
            factor = min(1.0, (max_pixels / (image.width * image.height)) ** 0.5)
            if factor == 1.0:
                return image
            return image.resize((max(1, int(image.width * factor)), max(1, int(image.height * factor))))
        factor = min(1.0, (max_pixels / (self.source.width * self.source.height)) ** 0.5)
        width = max(2, int(self.source.width * factor)) if factor < 1.0 else self.source.width
        height = max(2, int(self.source.height * factor)) if factor < 1.0 else self.source.height
        pixels = self.source.to_ndarray(format="rgb24", width=width, height=height)
        return Image.fromarray(np.ascontiguousarray(np.rot90(pixels, self.turns)))

    def thumbnail(self, width: int = 64, height: int = 36) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """A small RGB array of fixed size, for comparing frames; not turned."""
        if isinstance(self.source, Image.Image):
            return np.asarray(self.source.resize((width, height), Image.Resampling.BOX))
        found: np.ndarray[Any, np.dtype[np.uint8]] = self.source.to_ndarray(
            format="rgb24", width=width, height=height, interpolation="AREA"
        )
        return found


@dataclass
class Video:
    """An open video: what its container states, and its frames, which can be walked once."""

    width: int
    height: int
    fps: float | None
    stated_duration_s: float | None
    has_sound: bool
    codec: str
    frames: Iterator[Frame]
    faults: int = 0
    turns: int = field(default=0)


@contextmanager
def open_video(content: bytes, sampling: Sampling, max_seconds: float = MAX_SECONDS) -> Iterator[Video]:
    """Open a video file. Walking `frames` decodes each frame once, in the order shown.

    What decodes before a damaged place is given, and `faults` counts the rest. Raises InvalidMedia when
    there is no picture track, a frame has too many pixels, the video is longer than `max_seconds`, or no
    frame decodes.
    """
    with open_container(io.BytesIO(content), content, "video") as container:
        pictures = [stream for stream in container.streams.video if not _is_cover(stream)]
        if not pictures:
            raise InvalidMedia("file holds no picture track")
        stream = pictures[0]
        stream.thread_type = "AUTO"
        if stream.codec_context is None:
            raise InvalidMedia("video is coded in a way that is not read")
        width, height = stream.codec_context.width, stream.codec_context.height
        if width < 1 or height < 1:
            raise InvalidMedia("video states no picture size")
        if width * height > MAX_FRAME_PIXELS:
            raise InvalidMedia(
                f"video frames have {width * height:,} pixels; the limit is {MAX_FRAME_PIXELS:,}"
            )
        stated = _stated_duration(container, stream)
        if stated is not None and stated > max_seconds:
            raise InvalidMedia(f"video is {stated:.0f} s long; the limit is {max_seconds:g} s")
        rate = float(stream.average_rate) if stream.average_rate else None
        video = Video(
            width, height, rate, stated, bool(container.streams.audio), stream.codec_context.name, iter(())
        )
        video.frames = _walk(container, stream, video, sampling)
        yield video


def open_pictures(contents: Sequence[bytes], fps: float) -> Video:
    """A video given as a list of still pictures, `fps` of them a second. Raises InvalidMedia."""
    first = read_picture(contents[0], MAX_FRAME_PIXELS)

    def walk() -> Iterator[Frame]:
        for index, content in enumerate(contents):
            picture = first if index == 0 else read_picture(content, MAX_FRAME_PIXELS)
            yield Frame(index, index / fps, True, picture.image)

    duration = len(contents) / fps
    return Video(first.width, first.height, fps, duration, False, first.format.lower(), walk())


def _is_cover(stream: Any) -> bool:
    return bool(stream.disposition & av.stream.Disposition.attached_pic)


def _stated_duration(container: Any, stream: Any) -> float | None:
    if stream.duration and stream.time_base:
        return float(stream.duration * stream.time_base)
    return container.duration / av.time_base if container.duration else None


def _walk(container: Any, stream: Any, video: Video, sampling: Sampling) -> Iterator[Frame]:
    step = 1.0 / (video.fps or 25.0)
    wanted = sampling.times(video.stated_duration_s, step) if video.stated_duration_s else None
    start: float | None = None
    index = taken = 0
    for shown in _decode(container, stream, video):
        now = float(shown.pts * shown.time_base) if shown.pts is not None else index * step + (start or 0.0)
        start = now if start is None else start
        time_s = max(0.0, now - start)
        if time_s > MAX_SECONDS:
            raise InvalidMedia(f"video is longer than the limit of {MAX_SECONDS:g} s")
        if shown.width * shown.height > MAX_FRAME_PIXELS:
            raise InvalidMedia(f"video frames have {shown.width * shown.height:,} pixels")
        due = _is_due(wanted, taken, time_s + step / 2, sampling)
        if index == 0:
            video.turns = (round(shown.rotation / 90)) % 4
            if video.turns % 2:
                video.width, video.height = video.height, video.width
        yield Frame(index, time_s, due, shown, video.turns)
        while _is_due(wanted, taken, time_s + step / 2, sampling):
            taken += 1
        index += 1
    if index == 0:
        raise InvalidMedia("video is damaged: no frame could be decoded")


def _is_due(wanted: list[float] | None, taken: int, time_s: float, sampling: Sampling) -> bool:
    if wanted is None:
        return taken < sampling.max_frames and time_s >= taken / sampling.fps
    return taken < len(wanted) and time_s >= wanted[taken]


def _decode(container: Any, stream: Any, video: Video) -> Iterator[Any]:
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return
        except av.FFmpegError:
            video.faults += 1
            return
        try:
            yield from packet.decode()
        except av.FFmpegError:
            video.faults += 1
