from __future__ import annotations

from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[2] / "samples"
FILES = Path(__file__).parent / "files"


@pytest.fixture(scope="session")
def clip() -> bytes:
    return (SAMPLES / "clips/news/broadcast/0001_0000-0006.mp4").read_bytes()


@pytest.fixture(scope="session")
def files() -> Path:
    return FILES


@pytest.fixture(scope="session")
def turned_clip(clip: bytes) -> bytes:
    """The clip with the display matrix of a telephone held upright."""
    at = clip.index(b"tkhd") + 4 + 40
    matrix = b"".join(
        number.to_bytes(4, "big", signed=True)
        for number in (0, 1 << 16, 0, -(1 << 16), 0, 0, 360 << 16, 0, 1 << 30)
    )
    return clip[:at] + matrix + clip[at + 36 :]
