"""The boxes of mp4 and QuickTime files: where they stand, and the tables of a track. ISO/IEC 14496-12."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dabom.media.sources import Source

MAX_MOOV_BYTES = 32 * 2**20
_MAX_BOXES = 1024
_PEEK_BYTES = 2048


@dataclass
class Track:
    """One track as its tables state it; times are in ticks of `timescale`."""

    id: int = 0
    handler: bytes = b""
    codec: bytes = b""
    timescale: int = 0
    width: int = 0
    height: int = 0
    matrix: tuple[int, ...] = ()
    rate: int = 0
    config: bytes = b""
    """The decoder's configuration (`esds`)."""
    samples: int = 0
    first_packet: tuple[int, int] = (0, 0)
    """Where the first sample stands in the file, and its bytes."""
    first_sync: int = 1
    steps: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """Rows of count and duration (`stts`)."""
    offsets: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """Rows of count and composition offset (`ctts`)."""
    edits: list[tuple[int, int]] = field(default_factory=list)
    """Duration in ticks of the movie and start in ticks of the track, -1 for an empty edit (`elst`)."""


@dataclass
class Movie:
    """The tracks of a file. `cut` says that a box reaches beyond its end."""

    timescale: int = 0
    tracks: list[Track] = field(default_factory=list)
    found: bool = False
    fragmented: bool = False
    cut: bool = False
    fragments: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Samples and ticks in movie fragments by track."""
    defaults: dict[int, int] = field(default_factory=dict)
    """Duration of a sample in fragments by track (`trex`)."""
    left_out: float = 1.0
    """How many times as many fragments there are as were looked at, by bytes."""


def read_movie(source: Source) -> Movie:
    """The movie of a file, wherever its `moov` stands.

    May raise `struct.error`, `ValueError` or `IndexError` on bad bytes.
    """
    movie, at = Movie(), 0
    head = source.read(0, _PEEK_BYTES)
    for _ in range(_MAX_BOXES):
        if at + 8 > source.size:
            break
        intro = head[at : at + 16] if at + 16 <= len(head) else source.read(at, 16)
        length, kind = struct.unpack_from(">I4s", intro)
        start = at + 8
        if length == 1:
            length, start = struct.unpack_from(">Q", intro, 8)[0], at + 16
        elif length == 0:
            length = source.size - at
        if length < start - at:
            break
        stop = at + length
        movie.cut = stop > source.size
        if kind == b"moov" and not movie.found and not movie.cut:
            if stop - start > MAX_MOOV_BYTES:
                raise ValueError("the index is too large")
            movie.found = True
            _moov(source.read(start, stop - start), movie)
        elif kind == b"moof" and not movie.cut and stop - start <= MAX_MOOV_BYTES:
            _moof(source.read(start, stop - start), movie)
        at = stop
    else:
        movie.left_out = source.size / max(1, at)
    return movie


def walk(data: bytes, at: int = 0, end: int | None = None) -> Iterator[tuple[bytes, int, int]]:
    """Kind, start and end of each box in `data`."""
    end = len(data) if end is None else end
    while at + 8 <= end:
        length, kind = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if length == 1:
            length, start = struct.unpack_from(">Q", data, at + 8)[0], at + 16
        elif length == 0:
            length = end - at
        if length < start - at:
            return
        yield kind, start, min(at + length, end)
        at += length


def _moov(data: bytes, movie: Movie) -> None:
    for kind, start, end in walk(data):
        if kind == b"mvhd":
            movie.timescale = struct.unpack_from(">I", data, start + (20 if data[start] == 1 else 12))[0]
        elif kind == b"trak":
            track = Track()
            _inside(data, start, end, track)
            movie.tracks.append(track)
        elif kind == b"mvex":
            movie.fragmented = True
            for inner, at, stop in walk(data, start, end):
                if inner == b"trex" and stop - at >= 16:
                    ident, _, step = struct.unpack_from(">III", data, at + 4)
                    movie.defaults[ident] = step


_CONTAINERS = frozenset({b"mdia", b"minf", b"stbl", b"edts"})


def _inside(data: bytes, start: int, end: int, track: Track) -> None:
    """The boxes of one track."""
    for kind, at, stop in walk(data, start, end):
        if kind in _CONTAINERS:
            _inside(data, at, stop, track)
        elif kind == b"tkhd":
            wide = 12 if data[at] == 1 else 0
            track.id = struct.unpack_from(">I", data, at + (20 if wide else 12))[0]
            track.matrix = struct.unpack_from(">9i", data, at + 40 + wide)
            track.width, track.height = (n >> 16 for n in struct.unpack_from(">II", data, at + 76 + wide))
        elif kind == b"mdhd":
            track.timescale = struct.unpack_from(">I", data, at + (20 if data[at] == 1 else 12))[0]
        elif kind == b"hdlr":
            track.handler = track.handler or data[at + 8 : at + 12]
        elif kind == b"stsd":
            _description(data, at + 8, stop, track)
        elif kind in _TABLES:
            _TABLES[kind](data, at, stop, track)


def _elst(data: bytes, at: int, stop: int, track: Track) -> None:
    layout = ">QqI" if data[at] == 1 else ">IiI"
    width = struct.calcsize(layout)
    count = min(struct.unpack_from(">I", data, at + 4)[0], (stop - at - 8) // width)
    rows = (struct.unpack_from(layout, data, at + 8 + row * width) for row in range(count))
    track.edits = [(duration, start) for duration, start, _ in rows]


def _stts(data: bytes, at: int, stop: int, track: Track) -> None:
    track.steps = _pairs(data, at, stop)


def _ctts(data: bytes, at: int, stop: int, track: Track) -> None:
    pairs = _pairs(data, at, stop)
    # signed in practice, whatever the version says
    pairs[:, 1] = pairs[:, 1].astype(np.uint32).view(np.int32)
    track.offsets = pairs


def _stsz(data: bytes, at: int, stop: int, track: Track) -> None:
    size, count = struct.unpack_from(">II", data, at + 4)
    track.samples = count if size else min(count, (stop - at - 12) // 4)
    if track.samples:
        track.first_packet = (track.first_packet[0], size or struct.unpack_from(">I", data, at + 12)[0])


def _stz2(data: bytes, at: int, stop: int, track: Track) -> None:
    track.samples = min(struct.unpack_from(">I", data, at + 8)[0], (stop - at) * 2)


def _stss(data: bytes, at: int, stop: int, track: Track) -> None:
    if stop - at >= 12 and struct.unpack_from(">I", data, at + 4)[0]:
        track.first_sync = struct.unpack_from(">I", data, at + 8)[0]


def _stco(data: bytes, at: int, stop: int, track: Track) -> None:
    wide = data[at - 4 : at] == b"co64"
    if stop - at >= (16 if wide else 12):
        place = struct.unpack_from(">Q" if wide else ">I", data, at + 8)[0]
        track.first_packet = (place, track.first_packet[1])


_TABLES = {
    b"elst": _elst,
    b"stts": _stts,
    b"ctts": _ctts,
    b"stsz": _stsz,
    b"stz2": _stz2,
    b"stss": _stss,
    b"stco": _stco,
    b"co64": _stco,
}


def _pairs(data: bytes, at: int, stop: int) -> NDArray[np.int64]:
    count = min(struct.unpack_from(">I", data, at + 4)[0], (stop - at - 8) // 8)
    return np.frombuffer(data, ">u4", count * 2, at + 8).reshape(count, 2).astype(np.int64)


def _description(data: bytes, at: int, end: int, track: Track) -> None:
    """The first sample description: size of the picture as coded, or rate of the sound."""
    length, track.codec = struct.unpack_from(">I4s", data, at)
    stop = min(end, at + length)
    if track.handler == b"vide" and stop - at >= 36:
        width, height = struct.unpack_from(">HH", data, at + 32)
        if width and height:
            track.width, track.height = width, height
    elif track.handler == b"soun" and stop - at >= 36:
        version = struct.unpack_from(">H", data, at + 16)[0]
        track.rate = struct.unpack_from(">I", data, at + 32)[0] >> 16
        if version == 2:
            track.rate = round(struct.unpack_from(">d", data, at + 40)[0])
        _configuration(data, at + 36 + {1: 16, 2: 36}.get(version, 0), stop, track)


def _configuration(data: bytes, at: int, end: int, track: Track) -> None:
    for kind, start, stop in walk(data, at, end):
        if kind == b"wave":
            _configuration(data, start, stop, track)
        elif kind == b"esds":
            track.config = data[start + 4 : stop]
        elif kind == b"dOps" and stop - start >= 8:
            track.rate = 48_000  # Opus is always decoded at this rate


def _moof(data: bytes, movie: Movie) -> None:
    """Add the samples of one fragment."""
    for kind, start, end in walk(data):
        if kind != b"traf":
            continue
        ident, step, samples, ticks = 0, 0, 0, 0
        for inner, at, _ in walk(data, start, end):
            flags = int.from_bytes(data[at + 1 : at + 4], "big")
            if inner == b"tfhd":
                ident = struct.unpack_from(">I", data, at + 4)[0]
                step = movie.defaults.get(ident, 0)
                if flags & 8:
                    skip = 8 + 8 * (flags & 1) + 4 * (flags >> 1 & 1)
                    step = struct.unpack_from(">I", data, at + skip)[0]
            elif inner == b"trun":
                count, total = _run(data, at, flags, step)
                samples, ticks = samples + count, ticks + total
        known = movie.fragments.get(ident, (0, 0))
        movie.fragments[ident] = known[0] + samples, known[1] + ticks


def _run(data: bytes, at: int, flags: int, step: int) -> tuple[int, int]:
    count = struct.unpack_from(">I", data, at + 4)[0]
    if not flags & 0x100:
        return count, count * step
    first = at + 8 + 4 * (flags & 1) + 4 * (flags >> 2 & 1)
    width = 4 * (flags >> 8 & 0xF).bit_count()
    count = min(count, (len(data) - first) // width)
    rows = np.frombuffer(data, ">u4", count * width // 4, first).reshape(count, width // 4)
    return count, int(rows[:, 0].sum(dtype=np.int64))
