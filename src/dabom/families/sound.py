"""How many tokens a sound is."""

from __future__ import annotations

RATE_HZ = 16_000
HOP = 160
"""Samples of one window: 10 ms."""
MIN_SAMPLES = HOP + 1
"""At 16 kHz; anything shorter is refused."""
_CHUNK, _CHUNK_TOKENS = 100, 13


def at_16khz(samples: int, rate: int) -> int:
    """Samples after resampling to 16 kHz, rounded up. Source: torchaudio `Resample`."""
    return -(-samples * RATE_HZ // rate)


def windows(samples: int) -> int:
    """Windows of 10 ms of a sound at 16 kHz; the last one is filled up with silence."""
    return -(-samples // HOP)


def sound_tokens(count: int) -> int:
    """Tokens of `count` windows: 13 for each full second, and three halvings of what is left.

    Source: transformers `qwen3_omni_moe/processing_qwen3_omni_moe.py`, _get_feat_extract_output_lengths.
    """
    rest = count % _CHUNK
    half = (rest - 1) // 2 + 1
    quarter = (half - 1) // 2 + 1
    return (quarter - 1) // 2 + 1 + count // _CHUNK * _CHUNK_TOKENS
