"""Size, rate and length of Matroska, WebM and AVI files as their headers state them.

These containers say how long a clip is and not how many frames it has: what is found is an estimate.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from dabom.media.values import MediaFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dabom.media.sources import Source

_HEAD_BYTES = 16_384
_SEGMENT, _INFO, _TRACKS, _ENTRY, _VIDEO, _AUDIO = 0x18538067, 0x1549A966, 0x1654AE6B, 0xAE, 0xE0, 0xE1
_MASTERS = frozenset({_SEGMENT, _INFO, _TRACKS, _ENTRY, _VIDEO, _AUDIO})
_SCALE, _DURATION, _STEP, _TYPE, _WIDTH, _HEIGHT, _RATE = (
    0x2AD7B1,
    0x4489,
    0x23E383,
    0x83,
    0xB0,
    0xBA,
    0xB5,
)


def matroska_facts(mime: str, source: Source) -> MediaFacts:
    """The facts that the first elements state; RFC 9559."""
    data = source.read(0, _HEAD_BYTES)
    found: dict[int, int | float] = {}
    kind, steps = 0, {1: 0.0, 2: 0.0}
    for ident, start, end in _elements(data, 0, len(data)):
        body = data[start:end]
        if ident == _TYPE:
            kind = int.from_bytes(body, "big")
        elif ident == _STEP:
            steps[kind] = int.from_bytes(body, "big") / 1e9
        elif ident in {_DURATION, _RATE}:
            found.setdefault(ident, struct.unpack(">f" if len(body) == 4 else ">d", body)[0])
        elif ident in {_SCALE, _WIDTH, _HEIGHT}:
            found.setdefault(ident, int.from_bytes(body, "big"))
    seconds = float(found.get(_DURATION, 0)) * found.get(_SCALE, 1_000_000) / 1e9
    step, rate = steps[1], round(found.get(_RATE, 0))
    width, height = int(found.get(_WIDTH, 0)), int(found.get(_HEIGHT, 0))
    return MediaFacts(
        "video" if width else "audio",
        mime,
        width,
        height,
        frames=round(seconds / step) if step and width else 0,
        fps=1 / step if step and width else 0.0,
        seconds=seconds,
        audio_samples=round(seconds * rate),
        audio_rate=rate,
        estimated=True,
        problem="" if width or rate else "damaged",
    )


def _elements(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Identifier, start and end of every element that is no master; masters are entered."""
    while at < end:
        width = 9 - data[at].bit_length()
        ident = int.from_bytes(data[at : at + width], "big")
        at += width
        if at >= end or width > 4:
            return
        width = 9 - data[at].bit_length()
        if width > 8:
            return
        length = int.from_bytes(data[at : at + width], "big") & (1 << 7 * width) - 1
        at += width
        # all ones: as long as what it stands in
        stop = end if length == (1 << 7 * width) - 1 else min(at + length, end)
        if ident in _MASTERS:
            yield from _elements(data, at, stop)
        else:
            yield ident, at, stop
        at = stop


def avi_facts(mime: str, source: Source) -> MediaFacts:
    """The facts of the main header of an AVI file."""
    data = source.read(0, 4096)
    at = data.index(b"avih") + 8
    step_us, frames = struct.unpack_from("<I", data, at)[0], struct.unpack_from("<I", data, at + 16)[0]
    width, height = struct.unpack_from("<II", data, at + 32)
    rate, sound = 0, data.find(b"auds")
    if sound >= 0 and (form := data.find(b"strf", sound)) >= 0:
        rate = struct.unpack_from("<I", data, form + 12)[0]
    seconds = frames * step_us / 1e6
    return MediaFacts(
        "video",
        mime,
        width,
        height,
        frames=frames,
        fps=1e6 / step_us if step_us else 0.0,
        seconds=seconds,
        audio_samples=round(seconds * rate),
        audio_rate=rate,
        estimated=True,
        problem="" if width and height else "damaged",
    )
