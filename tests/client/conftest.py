from __future__ import annotations

import struct
import wave
import zlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


@pytest.fixture
def png() -> bytes:
    """A whole 1x1 picture."""
    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0\xff\0\0")
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")


@pytest.fixture
def mp4() -> bytes:
    """Bytes that begin as an MP4 does."""
    return b"\0\0\0\x18ftypisom\0\0\2\0isomiso2" + bytes(range(256)) * 8


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    """A tenth of a second of silence."""
    path = tmp_path / "sound.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(bytes(3200))
    return path


@pytest.fixture
def wav_bytes(wav: Path) -> bytes:
    return wav.read_bytes()
