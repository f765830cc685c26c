"""Media for the conformance tests: `python -m script.conformance.media FOLDER`, with PyAV."""

from __future__ import annotations

import sys
import wave
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from PIL import Image, ImageDraw

RATE_HZ, FPS, SECONDS = 16_000, 10, 3
WIDTH, HEIGHT = 160, 128

Array = np.ndarray[tuple[int, ...], np.dtype[Any]]


def draw_pictures(folder: Path) -> None:
    picture = Image.new("RGB", (128, 96), (200, 30, 30))
    ImageDraw.Draw(picture).rectangle((20, 20, 80, 60), fill=(30, 30, 200))
    picture.save(folder / "square.png")
    picture.save(folder / "square.jpg")
    Image.new("RGB", (128, 96)).save(folder / "black.png")


def tone(seconds: int) -> Array:
    moments = np.arange(RATE_HZ * seconds) / RATE_HZ
    return (np.sin(2 * np.pi * 440 * moments) * 8000).astype(np.int16)


def write_clip(path: Path, *, sound: bool, moving: bool = True) -> None:
    with av.open(str(path), "w") as out:
        track = out.add_stream("libx264", rate=FPS)
        track.width, track.height, track.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        voice = out.add_stream("aac", rate=RATE_HZ, layout="mono") if sound else None
        for number in range(SECONDS * FPS):
            out.mux(
                track.encode(av.VideoFrame.from_ndarray(draw_frame(number if moving else 0), format="rgb24"))
            )
        out.mux(track.encode(None))
        if voice is not None:
            for start in range(0, RATE_HZ * SECONDS, 1024):
                piece = tone(SECONDS)[start : start + 1024][None]
                frame = av.AudioFrame.from_ndarray(piece, format="s16", layout="mono")
                frame.sample_rate, frame.pts, frame.time_base = RATE_HZ, start, Fraction(1, RATE_HZ)
                out.mux(voice.encode(frame))
            out.mux(voice.encode(None))


def draw_frame(number: int) -> Array:
    frame = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    frame[..., 0] = number * 8 % 255
    left = number * 3 % (WIDTH - 40)
    frame[20:60, left : left + 40, 1] = 255
    return frame


def write_sound(path: Path) -> None:
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE_HZ)
        out.writeframes(tone(2).tobytes())


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    draw_pictures(target)
    write_clip(target / "silent.mp4", sound=False)
    write_clip(target / "still.mp4", sound=False, moving=False)
    write_clip(target / "sound.mp4", sound=True)
    write_sound(target / "tone.wav")
