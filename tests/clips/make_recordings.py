"""Recordings with every trait of real broadcasts, small: a picture that shows its own number, known sound."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

BITS = 12
CHANNELS = {"mono": 1, "stereo": 2, "5.1": 6}


@dataclass(frozen=True)
class Track:
    """One sound track; `channel` alone sounds when it is not None."""

    language: str = ""
    layout: str = "mono"
    codec: str = "aac"
    rate: int = 48_000
    channel: int | None = None
    level: float = 0.3
    late_s: float = 0.0


@dataclass(frozen=True)
class Recorded:
    """What to make. `times` are seconds of the frames; none: `seconds` at `fps`."""

    seconds: float = 4.0
    fps: Fraction = Fraction(25)
    size: tuple[int, int] = (128, 72)
    times: tuple[float, ...] = ()
    codec: str = "libx264"
    gop: int = 12
    options: dict[str, str] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)
    aspect: Fraction = Fraction(1)
    begin_s: float = 0.0
    tracks: tuple[Track, ...] = (Track(),)
    picture: str = "number"
    muxer: dict[str, str] = field(default_factory=dict)


def make(path: Path, what: Recorded) -> Path:
    """Write the recording; the kind of file is by the name's end."""
    with av.open(str(path), "w", options=what.muxer) as out:
        video: Any = _video(out, what) if what.picture else None
        sounds = [_sound(out, track) for track in what.tracks]
        packets = [*_sounds(sounds, what), *(_pictures(video, what) if video is not None else [])]
        for _, packet in sorted(packets, key=lambda pair: pair[0]):
            out.mux(packet)
    return path


def number_of(luma: NDArray[np.uint8]) -> int:
    """The number that a picture shows."""
    width = luma.shape[1] / BITS
    row = luma[luma.shape[0] // 2]
    return sum(1 << bit for bit in range(BITS) if row[int((bit + 0.5) * width)] > 126)


def picture(number: int, size: tuple[int, int], kind: str = "number") -> NDArray[np.uint8]:
    """RGB of one frame: its number in columns; or white left and top quarters; or fields that differ."""
    width, height = size
    pixels = np.zeros((height, width, 3), np.uint8)
    if kind == "corner":
        pixels[: height // 2, : width // 2] = 235
    elif kind == "fields":
        pixels[0::2, (number * 8) % width : (number * 8) % width + 16] = 235
        pixels[1::2, (number * 8 + 4) % width : (number * 8 + 4) % width + 16] = 235
    else:
        for bit in range(BITS):
            if number >> bit & 1:
                pixels[:, round(bit * width / BITS) : round((bit + 1) * width / BITS)] = 235
    return pixels


def wave(what: Recorded, track: Track) -> NDArray[np.float32]:
    """The samples of a track, by channel: noise that repeats nowhere."""
    count = round(what.seconds * track.rate)
    noise = np.random.default_rng(3).uniform(-1, 1, count).astype(np.float32) * track.level
    samples = np.repeat(noise[None], CHANNELS[track.layout], axis=0)
    if track.channel is not None:
        samples[[row for row in range(len(samples)) if row != track.channel]] = 0
    return samples


def decode(path: Path) -> tuple[list[NDArray[np.uint8]], NDArray[np.float32]]:
    """Luma of every frame, and the first sound track as a decoder gives it."""
    frames: list[NDArray[np.uint8]] = []
    chunks: list[NDArray[np.float32]] = []
    with av.open(str(path)) as file:
        for packet in file.demux(*file.streams.video[:1], *file.streams.audio[:1]):
            for frame in packet.decode():
                if isinstance(frame, av.AudioFrame):
                    chunks.append(frame.to_ndarray().astype(np.float32))
                elif isinstance(frame, av.VideoFrame):
                    frames.append(frame.to_ndarray(format="gray").astype(np.uint8))
    return frames, np.concatenate(chunks, 1) if chunks else np.zeros((1, 0), np.float32)


def numbers(path: Path) -> list[int]:
    """The numbers that the pictures of a clip show."""
    return [number_of(frame) for frame in decode(path)[0]]


def turned(path: Path) -> Path:
    """The recording with the display matrix of a telephone held upright."""
    content = path.read_bytes()
    at = content.index(b"tkhd") + 4 + 40
    rows = (0, 1 << 16, 0, -(1 << 16), 0, 0, 72 << 16, 0, 1 << 30)
    matrix = b"".join(number.to_bytes(4, "big", signed=True) for number in rows)
    path.write_bytes(content[:at] + matrix + content[at + 36 :])
    return path


def _video(out: Any, what: Recorded) -> Any:
    options = {"preset": "ultrafast", "tune": "fastdecode", "qp": "16"} if what.codec == "libx264" else {}
    video = out.add_stream(what.codec, rate=what.fps, options=options | what.options)
    video.width, video.height = what.size
    video.pix_fmt = "yuv420p"
    video.codec_context.gop_size = what.gop
    video.codec_context.sample_aspect_ratio = what.aspect
    if what.codec == "mpeg2video":
        video.bit_rate = 4_000_000
    if what.times:
        video.codec_context.time_base = Fraction(1, 90_000)
    for name, value in what.tags.items():
        setattr(video.codec_context, name, value)
    return video


def _pictures(video: Any, what: Recorded) -> list[tuple[float, Any]]:
    times = what.times or tuple(float(n / what.fps) for n in range(round(what.seconds * what.fps)))
    base = Fraction(1, 90_000) if what.times else 1 / what.fps
    packets: list[Any] = []
    for number, time_s in enumerate(times):
        frame = av.VideoFrame.from_ndarray(picture(number, what.size, what.picture), format="rgb24")
        frame = frame.reformat(format="yuv420p")
        frame.pts, frame.time_base = round((time_s + what.begin_s) / base), base
        packets += video.encode(frame)
    packets += video.encode(None)
    return [(float(packet.dts * packet.time_base), packet) for packet in packets]


def _sound(out: Any, track: Track) -> tuple[Any, Track]:
    stream = out.add_stream(track.codec, rate=track.rate, layout=track.layout)
    if track.language:
        stream.metadata["language"] = track.language
    return stream, track


def _sounds(sounds: list[tuple[Any, Track]], what: Recorded) -> list[tuple[float, Any]]:
    packets: list[Any] = []
    for stream, track in sounds:
        pcm = track.codec.startswith("pcm")
        samples = wave(what, track)
        for at in range(0, samples.shape[1], 1024):
            chunk = samples[:, at : at + 1024]
            if pcm:
                chunk = (chunk.T.reshape(1, -1) * 32767).round().astype(np.int16)
            frame = av.AudioFrame.from_ndarray(
                np.ascontiguousarray(chunk), format="s16" if pcm else "fltp", layout=track.layout
            )
            frame.sample_rate, frame.time_base = track.rate, Fraction(1, track.rate)
            frame.pts = at + round((what.begin_s + track.late_s) * track.rate)
            packets += stream.encode(frame)
        packets += stream.encode(None)
    return [(float(packet.dts * packet.time_base), packet) for packet in packets]
