"""Which frames of a clip the model sees, and when."""

from __future__ import annotations

import math

DEFAULT_FPS = 2.0
MAX_FPS = 30.0
MIN_FRAMES, MAX_FRAMES = 4, 768
"""vLLM's own numbers; a checkpoint's `fps`, `min_frames` and `max_frames` do not count here."""
_UNKNOWN_FPS = 24.0


def asked_rate(fps: float | None) -> float:
    """Frames a second that the loader takes: 2 unless a request says otherwise, never above 30."""
    return min(fps or DEFAULT_FPS, MAX_FPS)


def spread(frames: int, fps: float, rate: float, least: int = MIN_FRAMES, most: int = MAX_FRAMES) -> int:
    """How many of `frames` Qwen3-VL takes, spread from the first to the last.

    Source: vLLM's loader `qwen3_vl`, and transformers `Qwen3VLVideoProcessor.sample_frames`.
    """
    wanted = int(frames / (fps or _UNKNOWN_FPS) * rate)
    return min(max(wanted, least), most, frames)


def arange(frames: int, fps: float, rate: float) -> int:
    """How many of `frames` Qwen2-VL, Qwen2.5-VL and the Omni families take; 0 for a clip that is refused.

    An even number n is chosen, and the indices are `torch.arange(0, N, N/n)`: their count is ceil(N/(N/n))
    in double precision, which is sometimes n + 1 (75 frames at 10 fps: 15, not 14).
    Source: vLLM's loader `qwen2_vl`; torch `RangeFactories`.
    """
    cap = min(MAX_FRAMES, frames) // 2 * 2
    chosen = math.floor(min(max(frames / fps * rate, MIN_FRAMES), cap, frames) / 2) * 2
    return math.ceil(frames / (frames / chosen)) if chosen else 0


def spread_places(frames: int, taken: int) -> list[int]:
    """The frames that `spread` means: numpy's `linspace(0, frames - 1, taken)`, halves to the even frame."""
    if taken < 2:
        return [0] * taken
    step = (frames - 1) / (taken - 1)
    return [*(round(index * step) for index in range(taken - 1)), frames - 1]


def arange_places(frames: int, taken: int) -> list[int]:
    """The frames that `arange` means, in order."""
    chosen = taken // 2 * 2
    return [min(int(index * (frames / chosen)), frames - 1) for index in range(taken)]


def stamps(places: list[int], fps: float) -> list[float]:
    """Seconds of each pair of frames of a Qwen3-VL clip; the last frame is repeated when their number is odd.

    Source: transformers `Qwen3VLProcessor._calculate_timestamps`.
    """
    rate = fps or _UNKNOWN_FPS
    even = [*places, places[-1]] if len(places) % 2 else places
    return [(even[i] / rate + even[i + 1] / rate) / 2 for i in range(0, len(even), 2)]


def stamp_tokens(second: float) -> int:
    """Tokens of the text `<12.5 seconds>`: one per digit and point, and three for `<`, ` seconds`, `>`."""
    return len(f"{second:.1f}") + 3
