"""How many tokens a sound is."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

RATE_HZ = 16_000
_HOP = 160
"""Samples of one window: 10 ms."""
_CHUNK, _CHUNK_TOKENS = 100, 13


@dataclass(frozen=True, slots=True)
class Hearing:
    """How a family counts a sound: tokens of so many windows, the fewest it takes, the most it keeps."""

    tokens: Callable[[int], int]
    least: int
    most: int | None = None

    @property
    def least_samples(self) -> int:
        """Samples at 16 kHz below which a sound is refused."""
        return (self.least - 1) * _HOP + 1


def at_16khz(samples: int, rate: int) -> int:
    """Samples after resampling to 16 kHz: rounded up, from a length held in single precision.

    Source: torchaudio `functional.resample`, which makes a float32 tensor of the length before it rounds.
    """
    if rate == RATE_HZ:
        return samples
    shared = math.gcd(rate, RATE_HZ)
    exact = (RATE_HZ // shared) * samples / (rate // shared)
    single: float = struct.unpack("f", struct.pack("f", exact))[0]
    return math.ceil(single)


def windows(samples: int) -> int:
    """Windows of 10 ms of a sound at 16 kHz; the last one is filled up with silence."""
    return -(-samples // _HOP)


def _qwen3_tokens(count: int) -> int:
    """13 for each full second, and three halvings of what is left.

    Source: transformers `qwen3_omni_moe/processing_qwen3_omni_moe.py`, _get_feat_extract_output_lengths.
    """
    half = (count % _CHUNK - 1) // 2 + 1
    quarter = (half - 1) // 2 + 1
    return (quarter - 1) // 2 + 1 + count // _CHUNK * _CHUNK_TOKENS


def _qwen25_tokens(count: int) -> int:
    """25 a second. Source: transformers `qwen2_5_omni/processing_qwen2_5_omni.py`, audio_lengths."""
    return ((count - 1) // 2 + 1 - 2) // 2 + 1


QWEN3 = Hearing(_qwen3_tokens, least=2)
QWEN25 = Hearing(_qwen25_tokens, least=3, most=30_000)
"""Its feature extractor cuts a sound off at 300 s."""
