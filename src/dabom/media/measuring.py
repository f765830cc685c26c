"""What a clip looks and sounds like in three shares: black, still, silent. And the digests of its packets.

The limits are the defaults of FFmpeg's blackdetect, freezedetect and silencedetect.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import av
import numpy as np

from dabom.errors import InvalidMedia
from dabom.media.recording import open_recording, picture_track

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_BLACK_LUMA, _BLACK_SHARE = 38, 0.98
"""A pixel up to a tenth of the way from black to white is black; 98 % of them make a black picture."""
_STILL = 0.255
"""Mean difference of luma below which nothing has moved: a thousandth of the range."""
_SILENT = 0.001
"""-60 dB of full scale, over a tenth of a second."""
_GRAIN = 160
"""Pixels across that are looked at."""


@dataclass
class Look:
    """Looks at the pictures of one clip, in order. `box` is width and height without a black frame."""

    box: tuple[int, int]
    count: int = 0
    black: int = 0
    still: int = 0
    _before: NDArray[np.int16] | None = None

    def at(self, frame: Any) -> None:
        """One more picture."""
        luma = self._luma(frame)
        self.count += 1
        self.black += bool(np.mean(luma <= _BLACK_LUMA) >= _BLACK_SHARE)
        if self._before is not None and self._before.shape == luma.shape:
            self.still += bool(np.abs(luma - self._before).mean() < _STILL)
        self._before = luma

    @property
    def black_share(self) -> float:
        """Black pictures by all."""
        return round(self.black / self.count, 4) if self.count else 0.0

    @property
    def freeze_share(self) -> float:
        """Steps from one picture to the next in which nothing moves, by all steps."""
        return round(self.still / (self.count - 1), 4) if self.count > 1 else 0.0

    def _luma(self, frame: Any) -> NDArray[np.int16]:
        plane = frame.planes[0]
        rows = np.frombuffer(plane, np.uint8)[: plane.line_size * plane.height]
        whole = rows.reshape(plane.height, plane.line_size)[:, : plane.width]
        left, top = (plane.width - self.box[0]) // 2, (plane.height - self.box[1]) // 2
        step = max(1, self.box[0] // _GRAIN)
        inside = whole[top : top + self.box[1] : step, left : left + self.box[0] : step]
        return inside.astype(np.int16)


def silence_share(samples: NDArray[np.float32], rate: int) -> float:
    """The share of tenths of a second that are silent."""
    part = max(1, rate // 10)
    whole = samples[:, : samples.shape[1] // part * part].reshape(len(samples), -1, part)
    if not whole.size:
        return 1.0
    loud = np.sqrt((whole.astype(np.float64) ** 2).mean(2)).max(0)
    return round(float((loud < _SILENT).mean()), 4)


class Digests(NamedTuple):
    """SHA-256 of a file, and of the packets of its picture and of its sound; empty without that track."""

    file: str
    video: str
    audio: str


def digests(path: Path) -> Digests:
    """The digests of a clip. Raises InvalidMedia."""
    with path.open("rb") as opened:
        whole = hashlib.file_digest(opened, "sha256").hexdigest()
    found = {}
    with open_recording(path) as container:
        picture = picture_track(container)
        tracks = [track for track in (picture, *container.streams.audio[:1]) if track is not None]
        found = {track.index: hashlib.sha256() for track in tracks}
        try:
            for packet in container.demux(tracks):
                if packet.size:
                    found[packet.stream_index].update(memoryview(packet))
        except av.FFmpegError:
            raise InvalidMedia(f"{path}: damaged") from None
        sums = {track.type: found[track.index].hexdigest() for track in tracks}
    return Digests(whole, sums.get("video", ""), sums.get("audio", ""))


class Seen(NamedTuple):
    """Shares of a finished clip."""

    black: float
    freeze: float
    silence: float


def measure(path: Path) -> Seen:
    """Decode a finished clip and measure it. Raises InvalidMedia."""
    chunks: list[NDArray[np.float32]] = []
    rate, look = 0, Look((0, 0))
    with open_recording(path) as container:
        picture = picture_track(container)
        tracks = [track for track in (picture, *container.streams.audio[:1]) if track is not None]
        try:
            for packet in container.demux(tracks):
                for frame in packet.decode():
                    if isinstance(frame, av.AudioFrame):
                        rate = frame.sample_rate
                        chunks.append(_floats(frame))
                    else:
                        look.box = (frame.width, frame.height)
                        look.at(frame if frame.format.name == "yuv420p" else frame.reformat(format="yuv420p"))
        except av.FFmpegError:
            raise InvalidMedia(f"{path}: damaged") from None
    silence = silence_share(np.concatenate(chunks, 1), rate) if chunks else 1.0
    return Seen(look.black_share, look.freeze_share, silence)


def _floats(frame: Any) -> NDArray[np.float32]:
    pieces = av.AudioResampler(format="fltp", layout=frame.layout, rate=frame.sample_rate).resample(frame)
    return np.concatenate([piece.to_ndarray() for piece in pieces], 1)
