"""Pictures, sounds and clips whose tokens are counted: `python -m script.conformance.token_media FOLDER`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SIZES = """
1x1 1x2 2x1 3x7 13x13 14x14 15x15 16x16 27x28 28x28 31x33 42x42 48x48 70x70 80x80 112x112 144x176 224x224
255x257 333x777 448x448 500x375 640x360 640x480 720x100 800x600 854x480 1000x1000 1024x768 1280x720 1344x1344
1366x768 1920x1080 2000x15 2000x10 10x2000 2001x10 3000x20 2480x3508 2560x1440 3840x2160 4096x4096 7680x4320
"""
MODES = ("RGBA", "LA", "L", "P", "1", "I;16", "CMYK")
NTSC = Fraction(30_000, 1001)


@dataclass(frozen=True)
class Clip:
    """A clip to be made: `times` are positions in units of `unit` seconds, one for each frame."""

    name: str
    size: tuple[int, int]
    times: Sequence[int]
    unit: Fraction
    rate: Fraction | int
    sound_s: float | None = None
    sound_hz: int = 16_000
    turned: int = 0
    options: tuple[tuple[str, str], ...] = (("bf", "0"),)


def even(name: str, size: tuple[int, int], frames: int, fps: Fraction | int, **more: Any) -> Clip:
    """A clip at one rate."""
    return Clip(name, size, range(frames), 1 / Fraction(fps), fps, **more)


def uneven(frames: int) -> list[int]:
    """Every third frame lasts twice as long."""
    return [index + index // 3 for index in range(frames)]


CLIPS = (
    even("c60_10.mp4", (640, 360), 60, 10),
    even("c180_30.mp4", (640, 360), 180, 30),
    even("c179_30.mp4", (640, 360), 179, 30),
    even("c180_ntsc.mp4", (640, 360), 180, NTSC),
    even("c179_ntsc.mp4", (320, 240), 179, NTSC),
    even("c75_10.mp4", (320, 240), 75, 10),
    even("c230_30.mp4", (160, 120), 230, 30),
    even("c237_ntsc.mp4", (160, 120), 237, NTSC),
    even("c191_24.mp4", (160, 120), 191, 24),
    even("c1_10.mp4", (64, 64), 1, 10),
    even("c2_10.mp4", (64, 64), 2, 10),
    even("c3_10.mp4", (64, 64), 3, 10),
    even("c5_30.mp4", (64, 64), 5, 30),
    even("c7_25.mp4", (322, 182), 7, 25),
    even("c33_15.mp4", (854, 480), 33, 15),
    even("c60_30_hd.mp4", (1280, 720), 60, 30),
    even("c31_30_fhd.mp4", (1920, 1080), 31, 30),
    even("c16_4.mp4", (64, 64), 16, 4),
    even("c50_5_strip.mp4", (1600, 16), 50, 5),
    even("c30_10_tiny.mp4", (16, 16), 30, 10),
    even("c120_1.mp4", (64, 64), 120, 1),
    even("c240_60.mp4", (128, 96), 240, 60),
    even("c90_30_bframes.mp4", (320, 180), 90, 30, options=(("bf", "2"),)),
    even("c90_30.mkv", (320, 180), 90, 30),
    even("c91_25.mov", (320, 180), 91, 25),
    even("c60_30_turned.mp4", (320, 180), 60, 30, turned=90),
    Clip("v75_30.mp4", (320, 180), uneven(75), Fraction(1, 30), 30),
    Clip("v70_15.mp4", (160, 120), [*range(30), *range(30, 150, 3)], Fraction(1, 30), 30),
    Clip("v80_ms.mp4", (160, 120), [i * 33 + i % 4 * 7 for i in range(80)], Fraction(1, 1000), 30),
    Clip("v75_30.mkv", (160, 120), uneven(75), Fraction(1, 30), 30),
)
HEARD = (
    even("s60_10.mp4", (640, 360), 60, 10, sound_s=6.0),
    even("s15_10.mp4", (64, 64), 15, 10, sound_s=1.5, sound_hz=44_100),
    even("s75_ntsc.mp4", (320, 240), 75, NTSC, sound_s=2.5, sound_hz=48_000),
    even("s300_10.mp4", (160, 120), 300, 10, sound_s=30.0, sound_hz=32_000),
    even("s40_10_longer.mp4", (160, 120), 40, 10, sound_s=7.3, sound_hz=22_050),
)
# name: samples of each channel, rate, channels
SOUNDS = {
    "a0100ms.wav": (1_600, 16_000, 1),
    "a160.wav": (160, 16_000, 1),
    "a161.wav": (161, 16_000, 1),
    "a320.wav": (320, 16_000, 1),
    "a0333ms.wav": (5_333, 16_000, 1),
    "a1s.wav": (16_000, 16_000, 1),
    "a1s_1.wav": (16_001, 16_000, 1),
    "a1s_8k.wav": (8_000, 8_000, 1),
    "a2s_stereo.wav": (88_200, 44_100, 2),
    "a3s_48k.wav": (144_001, 48_000, 2),
    "a5s_single.wav": (220_828, 44_100, 1),
    "a6s.wav": (96_000, 16_000, 1),
    "a7s_22k.wav": (154_351, 22_050, 1),
    "a10s.flac": (160_000, 16_000, 1),
    "a12s.flac": (529_200, 44_100, 2),
    "a30s.wav": (480_000, 16_000, 1),
    "a30s_44k.wav": (1_323_000, 44_100, 1),
}


def write_picture(path: Path, size: tuple[int, int], mode: str = "RGB", turn: int = 1) -> None:
    exif = Image.Exif()
    exif[0x0112] = turn
    picture = Image.new("RGB", size, (40, 90, 160))
    picture.paste((200, 60, 20), (0, 0, max(1, size[0] // 2), max(1, size[1] // 3)))
    made = picture.convert("L").convert(mode) if mode == "I;16" else picture.convert(mode)
    made.save(path, exif=exif) if turn != 1 else made.save(path)


def write_pictures(folder: Path) -> None:
    for text in SIZES.split():
        width, height = map(int, text.split("x"))
        write_picture(folder / f"p{text}.png", (width, height))
    for turn in range(2, 9):
        write_picture(folder / f"turned{turn}.jpg", (900 + turn * 10, 350), turn=turn)
    write_picture(folder / "turned6_12mp.jpg", (4032, 3024), turn=6)
    for mode in MODES:
        suffix = "jpg" if mode == "CMYK" else "png"
        write_picture(folder / f"mode_{mode.replace(';', '')}.{suffix}", (321, 123), mode)
    for suffix in ("webp", "bmp", "gif", "tiff"):
        write_picture(folder / f"kind.{suffix}", (450, 300))


def tone(samples: int, rate: int, channels: int) -> np.ndarray[Any, np.dtype[np.int16]]:
    wave = np.sin(2 * np.pi * 330 * np.arange(samples) / rate) * 9000
    return np.repeat(wave.astype(np.int16)[:, None], channels, axis=1)


def write_sound(path: Path, samples: int, rate: int, channels: int) -> None:
    with av.open(str(path), "w") as out:
        layout = "stereo" if channels == 2 else "mono"
        track = out.add_stream("flac" if path.suffix == ".flac" else "pcm_s16le", rate=rate, layout=layout)
        feed(out, track, tone(samples, rate, channels), rate, layout)


def feed(out: Any, track: Any, waves: Any, rate: int, layout: str) -> None:
    """Encode samples in pieces of 1024, as the coders want them."""
    for start in range(0, len(waves), 1024):
        piece = waves[start : start + 1024].reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(piece, format="s16", layout=layout)
        frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
        out.mux(track.encode(frame))
    out.mux(track.encode(None))


def write_clip(path: Path, clip: Clip) -> None:
    with av.open(str(path), "w") as out:
        track = out.add_stream("libx264", rate=clip.rate, options={"g": "12", **dict(clip.options)})
        track.width, track.height = clip.size
        track.pix_fmt = "yuv420p"
        track.codec_context.time_base = clip.unit
        voice = out.add_stream("aac", rate=clip.sound_hz, layout="mono") if clip.sound_s else None
        for number, place in enumerate(clip.times):
            shade = np.full((clip.size[1], clip.size[0], 3), number * 7 % 255, np.uint8)
            frame = av.VideoFrame.from_ndarray(shade, format="rgb24")
            frame.pts, frame.time_base = place, clip.unit
            out.mux(track.encode(frame))
        out.mux(track.encode(None))
        if voice is not None and clip.sound_s:
            feed(out, voice, tone(int(clip.sound_s * clip.sound_hz), clip.sound_hz, 1), clip.sound_hz, "mono")


def turn(path: Path) -> None:
    """Put a quarter turn into the matrix of the track's header (`tkhd`), 36 bytes before its size."""
    octets = bytearray(path.read_bytes())
    unity = b"\x00\x01\x00\x00"
    start = octets.index(b"tkhd")
    place = octets.index(unity, start + 40)
    octets[place : place + 20] = bytes(4) + unity + bytes(4) + b"\xff\xff\x00\x00" + bytes(4)
    path.write_bytes(bytes(octets))


def cut(source: Path, path: Path, skipped: int) -> None:
    """Copy from the key frame before frame `skipped` on; an edit list hides the lead."""
    with av.open(str(source)) as given, av.open(str(path), "w") as out:
        track = given.streams.video[0]
        copy = out.add_stream_from_template(track)
        offset = int(skipped / Fraction(track.average_rate or 30) / (track.time_base or 1))
        given.seek(offset, stream=track, backward=True)
        for packet in given.demux(track):
            if packet.dts is not None and packet.pts is not None:
                packet.stream, packet.pts, packet.dts = copy, packet.pts - offset, packet.dts - offset
                out.mux(packet)


def write_all(folder: Path, clips: Iterable[Clip]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_pictures(folder)
    for name, sound in SOUNDS.items():
        write_sound(folder / name, *sound)
    for clip in clips:
        write_clip(folder / clip.name, clip)
        if clip.turned:
            turn(folder / clip.name)
    cut(folder / "c180_30.mp4", folder / "cut.mp4", 43)


if __name__ == "__main__":
    write_all(Path(sys.argv[1]), (*CLIPS, *HEARD))
