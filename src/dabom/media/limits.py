"""What the decoders take at most, and how often a video is looked at when nobody says."""

from __future__ import annotations

MAX_PIXELS = 50_000_000
MAX_FRAME_PIXELS = 36_000_000
MAX_SECONDS = 600.0
DEFAULT_FPS = 2.0
MAX_SAMPLED = 256
