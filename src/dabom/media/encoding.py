"""Writing of one clip: H.264 and AAC in an mp4 with its index in front."""

from __future__ import annotations

import contextlib
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av
import numpy as np

from dabom.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from dabom.media.shape import Shape

AAC_SAMPLES = 1024
OPTIONS = {"movflags": "+faststart", "fflags": "+bitexact"}
_SOUND_BITS = {1: 64_000, 2: 128_000}
TAGS = ("color_range", "colorspace", "color_primaries", "color_trc")


@dataclass(frozen=True)
class Coding:
    """How pictures are coded: `crf` for one quality, or `bits` a second for one size; x264's `preset`."""

    preset: str = "veryfast"
    crf: int = 25
    bits: int = 0
    threads: int = 0


class ClipFile:
    """An mp4 that is being written under the name it is given.

    One group of pictures without B frames: no edit list hides a frame, and every server counts the same.
    """

    def __init__(self, path: Path, shape: Shape, coding: Coding) -> None:
        self._shape = shape
        self.path = path
        with told(path):
            self._file: Any = av.open(f"file:{path}", "w", format="mp4", options=OPTIONS)
        self._video = self._file.add_stream("libx264", rate=shape.fps, options=_x264(coding, shape.frames))
        self._video.width, self._video.height, self._video.pix_fmt = shape.width, shape.height, "yuv420p"
        self._video.codec_context.time_base = 1 / shape.fps
        self._video.codec_context.sample_aspect_ratio = shape.aspect
        if coding.bits:
            self._video.bit_rate = coding.bits
        layout = "mono" if shape.channels == 1 else "stereo"
        self._audio = add_sound(self._file, shape.rate, layout)
        self.pictures = 0
        self._last: Any = None

    def picture(self, frame: Any) -> None:
        """The next picture, of the shape's size, in yuv420p."""
        if not self.pictures:
            for tag in TAGS:
                setattr(self._video.codec_context, tag, getattr(frame, tag))
        frame.pts, frame.time_base = self.pictures, 1 / self._shape.fps
        with told(self.path):
            self._file.mux(self._video.encode(frame))
        self.pictures += 1
        self._last = frame

    def fill(self) -> int:
        """Repeat the last picture until there are as many as in every clip; how many were repeated."""
        lacking = self._shape.frames - self.pictures
        for _ in range(lacking):
            self.picture(self._last)
        return lacking

    def sound(self, samples: NDArray[np.float32]) -> None:
        """The whole sound, by channel."""
        with told(self.path):
            for packet in encode_sound(self._audio, samples, self._shape.rate):
                self._file.mux(packet)

    def finish(self) -> None:
        """Write what is left and the index."""
        with told(self.path):
            self._file.mux(self._video.encode(None))
            self._file.close()

    def abandon(self) -> None:
        """Give the file up and take it away."""
        with contextlib.suppress(av.FFmpegError, OSError, ValueError):
            self._file.close()
        self.path.unlink(missing_ok=True)


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn what goes wrong in writing into StoreError."""
    try:
        yield
    except (av.FFmpegError, OSError) as fault:
        reason = getattr(fault, "strerror", None) or fault
        raise StoreError(
            f"{path}: cannot be written ({reason}); look at the disk's room and rights"
        ) from None


def black(width: int, height: int) -> Any:
    """A black picture."""
    frame = av.VideoFrame(width, height, "yuv420p")
    for plane, value in zip(frame.planes, (16, 128, 128), strict=True):
        plane.update(bytes([value]) * plane.buffer_size)
    return frame


def add_sound(file: Any, rate: int, layout: str) -> Any:
    """An AAC track."""
    track = file.add_stream("aac", rate=rate, layout=layout)
    track.bit_rate = _SOUND_BITS[1 if layout == "mono" else 2]
    track.codec_context.options = {"flags": "+bitexact"}
    return track


def encode_sound(track: Any, samples: NDArray[np.float32], rate: int) -> list[Any]:
    """The packets of a whole sound."""
    layout = "mono" if len(samples) == 1 else "stereo"
    packets: list[Any] = []
    for at in range(0, samples.shape[1], AAC_SAMPLES):
        chunk = np.ascontiguousarray(samples[:, at : at + AAC_SAMPLES])
        frame = av.AudioFrame.from_ndarray(chunk, format="fltp", layout=layout)
        frame.sample_rate, frame.pts, frame.time_base = rate, at, Fraction(1, rate)
        packets.extend(track.encode(frame))
    packets.extend(track.encode(None))
    return packets


def _x264(coding: Coding, frames: int) -> dict[str, str]:
    options = {
        "preset": coding.preset,
        "bf": "0",
        "g": str(frames),
        "threads": str(coding.threads),
        "flags": "+bitexact",
    }
    return options if coding.bits else options | {"crf": str(coding.crf)}
