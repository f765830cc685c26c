"""Sound: any common format, or the sound track of a video, to mono float at 16 kHz."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import av
import numpy as np

from dabom.errors import InvalidMedia
from dabom.media.containers import open_container
from dabom.media.limits import MAX_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

RATE_HZ = 16_000


@dataclass(frozen=True)
class Sound:
    """Mono samples in -1..1 at 16 kHz, and what the source was."""

    samples: NDArray[np.float32]
    source_rate_hz: int
    channels: int
    codec: str
    whole: bool

    @property
    def duration_s(self) -> float:
        """Seconds that were decoded."""
        return len(self.samples) / RATE_HZ


def read_sound(content: bytes, max_seconds: float = MAX_SECONDS) -> Sound | None:
    """Decode the first sound track; None when a video has none.

    What decodes before a damaged place is kept and `whole` is false. Raises InvalidMedia when the bytes are
    no known container, nothing decodes, or there is more than `max_seconds`.
    """
    with open_container(io.BytesIO(content), content, "sound") as container:
        if not container.streams.audio:
            if container.streams.video:
                return None
            raise InvalidMedia("file holds no sound track")
        stream = container.streams.audio[0]
        if stream.codec_context is None:
            raise InvalidMedia("sound is coded in a way that is not read")
        chunks: list[NDArray[np.float32]] = []
        seen, faults = 0, [0]
        for chunk in _mono_chunks(container, stream, faults):
            seen += len(chunk)
            if seen > max_seconds * RATE_HZ:
                raise InvalidMedia(f"sound is longer than the limit of {max_seconds:g} s")
            chunks.append(chunk)
        if not seen:
            raise InvalidMedia("sound is damaged: no sample could be decoded")
        context = stream.codec_context
        return Sound(
            np.concatenate(chunks),
            context.sample_rate or 0,
            context.channels or 0,
            context.name,
            not faults[0],
        )


def _mono_chunks(container: Any, stream: Any, faults: list[int]) -> Iterator[NDArray[np.float32]]:
    # FFmpeg's own stereo to mono is 3 dB louder than either side: the two are averaged here instead.
    stereo = stream.codec_context.channels == 2
    resampler = av.AudioResampler(format="fltp", layout="stereo" if stereo else "mono", rate=RATE_HZ)
    try:
        for packet in container.demux(stream):
            try:
                frames = packet.decode()
                for frame in frames:
                    for out in resampler.resample(frame):
                        yield out.to_ndarray().mean(0, dtype=np.float32)
            except (av.FFmpegError, ValueError):
                faults[0] += 1
        for out in resampler.resample(None):
            yield out.to_ndarray().mean(0, dtype=np.float32)
    except av.FFmpegError:
        faults[0] += 1
