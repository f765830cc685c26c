"""Clips and sounds with every trait that changes what a decoder gives, made with PyAV."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Clip:
    """What to make. `times` are presentation times in seconds; None: `frames` at `fps`."""

    frames: int = 30
    fps: Fraction = Fraction(30)
    size: tuple[int, int] = (64, 48)
    codec: str = "libx264"
    bframes: int = 0
    gop: int = 12
    sound: str = ""
    rate: int = 16_000
    layout: str = "mono"
    seconds: float = 1.0
    times: tuple[float, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    format: str = "mp4"


def make(clip: Clip, file: Path | None = None) -> bytes:
    """The bytes of a file, written by way of `file` where the muxer has to read again what it wrote."""
    out = io.BytesIO()
    with av.open(str(file) if file else out, "w", format=clip.format, options=clip.options) as container:
        video: Any = _add_video(container, clip) if clip.frames or clip.times else None
        sound: Any = None
        if clip.sound:
            sound = container.add_stream(clip.sound, rate=clip.rate)
            sound.layout = clip.layout
        if video is not None:
            _fill_video(container, video, clip)
        if sound is not None:
            _fill_sound(container, sound, clip)
    return file.read_bytes() if file else out.getvalue()


def _add_video(container: Any, clip: Clip) -> Any:
    video = container.add_stream(clip.codec, rate=clip.fps)
    video.width, video.height = clip.size
    video.pix_fmt = "yuv420p"
    video.codec_context.gop_size = clip.gop
    video.options = {"bf": str(clip.bframes), "preset": "ultrafast"} | (
        {"x264-params": f"bframes={clip.bframes}:b-adapt=0:scenecut=0"} if clip.codec == "libx264" else {}
    )
    if clip.times:
        video.codec_context.time_base = Fraction(1, 90_000)
    return video


def _fill_video(container: Any, video: Any, clip: Clip) -> None:
    width, height = clip.size
    times = clip.times or tuple(float(n / clip.fps) for n in range(clip.frames))
    base = Fraction(1, 90_000) if clip.times else 1 / clip.fps
    for number, time_s in enumerate(times):
        pixels = np.full((height, width, 3), number * 7 % 256, np.uint8)
        frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
        frame.pts, frame.time_base = round(time_s / base), base
        container.mux(video.encode(frame))
    container.mux(video.encode(None))


def _fill_sound(container: Any, sound: Any, clip: Clip) -> None:
    total = round(clip.rate * clip.seconds)
    channels = {"mono": 1, "stereo": 2}[clip.layout]
    wave = (np.sin(np.arange(total) / 20) * 8000).astype(np.int16)
    data = np.repeat(wave[None, :], channels, axis=1).reshape(1, -1) if channels > 1 else wave[None, :]
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(data), format="s16", layout=clip.layout)
    frame.sample_rate = clip.rate
    frame.pts, frame.time_base = 0, Fraction(1, clip.rate)
    container.mux(sound.encode(frame))
    container.mux(sound.encode(None))


def copy_cut(content: bytes, start_s: float, end_s: float) -> bytes:
    """A piece cut out without encoding anew, as `ffmpeg -ss -c copy` does: an edit list hides its lead-in."""
    out = io.BytesIO()
    with av.open(io.BytesIO(content), "r") as source, av.open(out, "w", format="mp4") as target:
        copies = [(inner, target.add_stream_from_template(inner)) for inner in source.streams]
        for inner, copied in copies:
            base = Fraction(inner.time_base or 1)
            shift = round(Fraction(start_s) / base)
            source.seek(shift, stream=inner, backward=True)
            for packet in source.demux(inner):
                if packet.dts is None or packet.pts is None or packet.pts * base >= end_s:
                    continue
                packet.pts -= shift
                packet.dts -= shift
                packet.stream = copied
                target.mux(packet)
    return out.getvalue()


def with_edits(content: bytes, edits: Sequence[tuple[int, int]]) -> bytes:
    """The same file, `moov` last, with other edits of its first track: milliseconds and start in ticks."""
    at = content.index(b"elst") - 4
    size = int.from_bytes(content[at : at + 4], "big")
    rows = b"".join(struct.pack(">IiI", length, start, 1 << 16) for length, start in edits)
    box = struct.pack(">I4sII", 16 + len(rows), b"elst", 0, len(edits)) + rows
    grown = bytearray(content[:at] + box + content[at + size :])
    for name in (b"moov", b"trak", b"edts"):
        place = content.index(name) - 4
        length = int.from_bytes(grown[place : place + 4], "big") + len(box) - size
        grown[place : place + 4] = length.to_bytes(4, "big")
    return bytes(grown)


@dataclass(frozen=True)
class Decoded:
    """What a decoder gives."""

    frames: int
    fps: float
    samples: int
    rate: int


def decode(content: bytes) -> Decoded:
    """Count by decoding everything, what is discarded left out."""
    frames, fps, samples, rate = 0, 0.0, 0, 0
    with av.open(io.BytesIO(content), "r") as container:
        for stream in container.streams.video[:1]:
            fps = float(stream.average_rate or 0)
            frames = sum(len(packet.decode()) for packet in container.demux(stream))
    with av.open(io.BytesIO(content), "r") as container:
        for track in container.streams.audio[:1]:
            for packet in container.demux(track):
                for frame in packet.decode():
                    samples, rate = samples + frame.samples, frame.sample_rate
    return Decoded(frames, fps, samples, rate)
