from __future__ import annotations

import io
import wave
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import pytest

from dabom.errors import InvalidMedia
from dabom.media import read_sound
from dabom.media.sound import RATE_HZ

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def tone(seconds: float, rate: int, channels: int = 1) -> bytes:
    clock = np.arange(int(seconds * rate)) / rate
    samples = (np.sin(2 * np.pi * 440 * clock) * 16384).astype("<i2")
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((channels, 2, rate, 0, "NONE", "not compressed"))
        file.writeframes(np.repeat(samples, channels).tobytes())
    return out.getvalue()


def encode(container: str, codec: str, rate: int = 48_000) -> bytes:
    out = io.BytesIO()
    clock = np.arange(rate) / rate
    samples = (0.5 * np.sin(2 * np.pi * 440 * clock)).astype(np.float32)
    with av.open(out, "w", format=container) as file:
        stream: Any = file.add_stream(codec, rate=rate, layout="mono")
        resampler = av.AudioResampler(
            format=stream.format, layout="mono", rate=rate, frame_size=stream.frame_size
        )
        frame = av.AudioFrame.from_ndarray(samples[None], format="fltp", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = rate, 0, Fraction(1, rate)
        for part in [*resampler.resample(frame), *resampler.resample(None)]:
            file.mux(stream.encode(part))
        file.mux(stream.encode(None))
    return out.getvalue()


def loudest_hz(samples: NDArray[np.float32]) -> float:
    spectrum = np.abs(np.fft.rfft(samples))
    return float(np.argmax(spectrum)) * RATE_HZ / len(samples)


@pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (44_100, 2), (8_000, 1)])
def test_wav_becomes_mono_at_16_khz(rate: int, channels: int) -> None:
    sound = read_sound(tone(1.5, rate, channels))
    assert sound is not None
    assert sound.duration_s == pytest.approx(1.5, abs=0.01)
    assert (sound.source_rate_hz, sound.channels, sound.whole) == (rate, channels, True)
    assert sound.samples.dtype == np.float32
    assert loudest_hz(sound.samples) == pytest.approx(440, abs=3)
    assert float(np.abs(sound.samples).max()) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("container", "codec"),
    [("mp3", "libmp3lame"), ("adts", "aac"), ("flac", "flac"), ("ogg", "libopus"), ("ipod", "aac")],
)
def test_common_formats(container: str, codec: str) -> None:
    sound = read_sound(encode(container, codec))
    assert sound is not None
    assert sound.duration_s == pytest.approx(1.0, abs=0.1)
    assert loudest_hz(sound.samples) == pytest.approx(440, abs=5)


def test_sound_of_a_video(clip: bytes, files: Path) -> None:
    sound = read_sound(clip)
    assert sound is not None
    assert sound.duration_s == pytest.approx(6.0, abs=0.1)
    alone = read_sound((files / "audio-only.mp4").read_bytes())
    assert alone is not None
    assert alone.duration_s == pytest.approx(1.02, abs=0.05)


def test_silent_film_has_none() -> None:
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as file:
        stream = file.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for index in range(10):
            frame = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, 10)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    assert read_sound(out.getvalue()) is None


def test_refusals() -> None:
    with pytest.raises(InvalidMedia, match="longer than the limit of 1 s"):
        read_sound(tone(2.0, 16_000), max_seconds=1.0)
    with pytest.raises(InvalidMedia, match="0 bytes"):
        read_sound(b"")
    with pytest.raises(InvalidMedia, match="unknown bytes"):
        read_sound(b"not a sound at all")
    with pytest.raises(InvalidMedia):
        read_sound(tone(1.0, 16_000)[:44])
