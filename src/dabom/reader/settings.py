"""What can be set about the reader."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MODEL_ID = "reader"
MODEL_ALIAS = "qwen"
MAX_MODEL_LEN = 131_072


def _worker_count() -> int:
    return max(1, min(4, os.cpu_count() or 1))


@dataclass(frozen=True)
class ReaderSettings:
    """Frozen settings of one reader process."""

    workers: int = field(default_factory=_worker_count)
    time_limit_s: float = 120.0
    max_body_bytes: int = 96 * 1024 * 1024
    max_parts: int = 32
    max_worker_bytes: int = 4 * 1024**3
    whisper_model: Path | None = None
