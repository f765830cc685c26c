"""Opening of video and sound files with PyAV, by magic bytes only."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import av

from dabom.errors import InvalidMedia
from dabom.kinds import sniff

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator

# The demuxer is forced: a playlist format that FFmpeg would guess could open files and addresses of its own.
DEMUXERS = {
    "video/mp4": "mov",
    "audio/mp4": "mov",
    "video/quicktime": "mov",
    "video/x-matroska": "matroska",
    "video/webm": "matroska",
    "video/x-msvideo": "avi",
    "video/mp2t": "mpegts",
    "audio/wav": "wav",
    "audio/flac": "flac",
    "audio/ogg": "ogg",
    "audio/mpeg": "mp3",
    "audio/aac": "aac",
}
_KINDS = {
    "video": "MP4, QuickTime, WebM, Matroska, AVI or MPEG-TS",
    "sound": "WAV, MP3, AAC, FLAC, Ogg or the sound of a video",
}


@contextmanager
def open_container(source: io.BytesIO, content: bytes, wanted: str) -> Iterator[Any]:
    """A PyAV container over bytes in memory; `wanted` is "video" or "sound". Raises InvalidMedia."""
    if not content:
        raise InvalidMedia(f"{wanted} is empty: 0 bytes")
    mime = sniff(content[:512])
    demuxer = DEMUXERS.get(mime or "")
    if demuxer is None:
        raise InvalidMedia(
            f"not a readable {wanted}: found {mime or 'unknown bytes'}; {_KINDS[wanted]} is read"
        )
    try:
        container = av.open(source, format=demuxer, metadata_errors="ignore")
    except (av.FFmpegError, ValueError) as fault:
        raise InvalidMedia(f"{wanted} is damaged or cut off before its index ({mime})") from fault
    try:
        yield container
    finally:
        container.close()
