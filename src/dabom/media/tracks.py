"""From the tables of an mp4 to what a decoder will give: presentable frames, average rate, decoded samples.

The rules are those of FFmpeg's demuxer (`libavformat/mov.c`, `mov_fix_index`), which the servers decode with:
a sample is presented when its composition time lies within an edit; of sound, whole packets are decoded and
what lies before the first edit is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dabom.media.boxes import read_movie
from dabom.media.values import MediaFacts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dabom.media.boxes import Movie, Track
    from dabom.media.sources import Source
    from dabom.media.values import Kind

_MAX_TICKS = 2.0**62
_AAC = frozenset({0x40, 0x66, 0x67, 0x68})
_MP3 = frozenset({0x69, 0x6B})
_RATES = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350)
_TURNS = {
    (1, 0, 0, 1): 1,
    (-1, 0, 0, 1): 2,
    (-1, 0, 0, -1): 3,
    (1, 0, 0, -1): 4,
    (0, 1, 1, 0): 5,
    (0, 1, -1, 0): 6,
    (0, -1, -1, 0): 7,
    (0, -1, 1, 0): 8,
}


def movie_facts(mime: str, source: Source) -> MediaFacts:
    """The facts of an mp4 or QuickTime file; may raise `struct.error`, `ValueError` or `IndexError`."""
    movie = read_movie(source)
    video = next((t for t in movie.tracks if t.handler == b"vide"), None)
    sound = next((t for t in movie.tracks if t.handler == b"soun"), None)
    kind: Kind = "video" if video or not (sound or mime.startswith("audio/")) else "audio"
    if not movie.found or not (video or sound):
        return MediaFacts(kind, mime, problem="truncated" if movie.cut else "damaged")
    if kind == "audio":
        mime = "audio/mp4"
    samples, rate, guessed = _sound(movie, sound, source) if sound else (0, 0, False)
    facts = MediaFacts(
        kind,
        mime,
        seconds=samples / rate if rate else 0.0,
        audio_samples=samples,
        audio_rate=rate,
        estimated=guessed or movie.cut,
        problem="truncated" if movie.cut else "",
    )
    return _clip(movie, video, facts) if video else facts


def _clip(movie: Movie, track: Track, sound: MediaFacts) -> MediaFacts:
    fragment, ticks = movie.fragments.get(track.id, (0, 0))
    total, duration = _length(track)
    frames, seconds = total, duration / (track.timescale or 1)
    if track.edits and not movie.fragmented and movie.timescale:
        frames, seconds = _presented(track, movie.timescale)
    frames += round(fragment * movie.left_out)
    seconds += ticks * movie.left_out / (track.timescale or 1)
    fps = (total + fragment) * track.timescale / (duration + ticks) if duration + ticks else 0.0
    guessed = movie.fragmented or track.first_sync != 1 or frames != total
    steps = np.unique(track.steps[:-1, 1]) if len(track.steps) > 1 else track.steps[:1, 1]
    return MediaFacts(
        "video",
        sound.mime,
        track.width,
        track.height,
        _orientation(track.matrix),
        frames,
        fps,
        seconds,
        sound.audio_samples,
        sound.audio_rate,
        sound.estimated or guessed,
        sound.problem or ("" if frames else "damaged"),
        # the last frame alone may be longer or shorter
        vfr=len(steps) > 1 or bool(len(track.steps) > 1 and track.steps[-1, 0] > 1),
    )


def _length(track: Track) -> tuple[int, int]:
    """Samples and ticks in the tables."""
    if not len(track.steps):
        return 0, 0
    if (track.steps[:, 0].astype(float) * track.steps[:, 1]).sum() > _MAX_TICKS:
        raise ValueError("the times of the samples are too large")
    stated = int(track.steps[:, 0].sum())
    duration = int((track.steps[:, 0] * track.steps[:, 1]).sum())
    return min(track.samples or stated, stated), duration


def _presented(track: Track, timescale: int) -> tuple[int, float]:
    """Frames within the edits, and the seconds of the edits."""
    runs = _runs(track)
    frames, ticks = 0, 0
    last = int((runs[0] + runs[1] * runs[2]).max()) if len(runs[0]) else 0
    for start, end in _spans(track, timescale):
        frames += _within(*runs, (start, end))
        ticks += max(0, min(end, last) - start)
    return frames, ticks / (track.timescale or 1)


def _spans(track: Track, timescale: int) -> list[tuple[int, int]]:
    """Start and end of each edit in ticks of the track.

    Empty edits at the start only delay what follows; a later one is taken as it is written, from -1 on.
    """
    real = next((n for n, (_, start) in enumerate(track.edits) if start != -1), len(track.edits))
    return [
        (start, start + _rescale(length, track.timescale, timescale)) for length, start in track.edits[real:]
    ]


def _runs(track: Track) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Runs of samples at equal steps: the first composition time, the step and the number of each run.

    Never as long as the number of samples that a table claims, which may be billions.
    """
    total, _ = _length(track)
    ends = np.cumsum(track.steps[:, 0])
    if not len(track.offsets):  # most clips are made for streaming and have no frames out of order
        counts, steps = track.steps[:, 0], track.steps[:, 1]
        ticks = counts * steps
        return np.cumsum(ticks) - ticks, steps, np.clip(total - (ends - counts), 0, counts)
    shifts = np.cumsum(track.offsets[:, 0])
    stops = np.unique(np.concatenate((ends, shifts, [total])))
    stops = stops[(stops > 0) & (stops <= total)]
    starts = np.concatenate(([0], stops[:-1]))
    row = np.minimum(np.searchsorted(ends, starts, "right"), len(ends) - 1)
    steps = track.steps[row, 1]
    base = np.cumsum(track.steps[:, 0] * track.steps[:, 1]) - track.steps[:, 0] * track.steps[:, 1]
    firsts = base[row] + (starts - (ends - track.steps[:, 0])[row]) * steps
    if len(shifts):
        shifted = np.searchsorted(shifts, starts, "right")
        known = shifted < len(shifts)
        firsts = firsts + np.where(known, track.offsets[np.minimum(shifted, len(shifts) - 1), 1], 0)
    return firsts, steps, stops - starts


def _within(
    firsts: NDArray[np.int64], steps: NDArray[np.int64], counts: NDArray[np.int64], span: tuple[int, int]
) -> int:
    """Samples whose composition time lies in `span`, its end excluded."""
    unit = np.maximum(steps, 1)
    low = np.clip(-((firsts - span[0]) // unit), 0, counts)
    high = np.clip(-((firsts - span[1]) // unit), 0, counts)
    still = np.where((firsts >= span[0]) & (firsts < span[1]), counts, 0)
    return int(np.where(steps > 0, high - low, still).sum())


def _rescale(ticks: int, to: int, of: int) -> int:
    """Rounded to the nearest, as `av_rescale` does."""
    return (ticks * to * 2 + of) // (of * 2)


def _orientation(matrix: tuple[int, ...]) -> int:
    if len(matrix) < 5:
        return 1
    a, b, c, d = ((part > 0) - (part < 0) for part in (matrix[0], matrix[1], matrix[3], matrix[4]))
    return _TURNS.get((a, b, c, d), 1)


def _sound(movie: Movie, track: Track, source: Source) -> tuple[int, int, bool]:
    """Samples per channel as decoded, their rate, and whether they are estimated."""
    object_type, config = _decoder(track.config)
    core, rate, frame = track.rate, track.rate, 0
    if object_type in _AAC:
        core, rate, frame = _aac(config, track.rate)
    elif object_type in _MP3 or track.codec == b".mp3":
        frame = 1152 if core >= 32_000 else 576
    elif track.codec == b"Opus" and len(track.steps) and track.timescale:
        frame = int(track.steps[0, 1]) * core // track.timescale
    core = core or track.timescale
    rate = rate or core
    if not core or not track.timescale:
        return 0, 0, True
    fragment, ticks = movie.fragments.get(track.id, (0, 0))
    packets, duration = _length(track)
    packets, duration = packets + fragment, duration + ticks
    if movie.left_out > 1:
        packets, duration = round(packets * movie.left_out), round(duration * movie.left_out)
    guessed = movie.fragmented
    skipped = 0
    if track.edits and movie.timescale:
        spans = _spans(track, movie.timescale)
        skipped = max(0, spans[0][0]) if spans else 0
        if not movie.fragmented:
            packets, duration = _edited(track, spans)
    place, size = track.first_packet
    if frame and b"libfaac " in source.read(place, min(size, 32)):
        skipped = _rescale(frame, track.timescale, core)  # FFmpeg drops the first packet of this encoder
    decoded = packets * frame if frame else round(duration * core / track.timescale)
    decoded -= round(skipped * core / track.timescale)
    return max(0, round(decoded * rate / core)), rate, guessed


def _edited(track: Track, spans: list[tuple[int, int]]) -> tuple[int, int]:
    """Packets that the edits ask for, and their ticks; those before the first edit are dropped later."""
    firsts, steps, counts = _runs(track)
    before = np.cumsum(counts) - counts
    packets = ticks = 0
    for number, (start, end) in enumerate(spans):
        skipped = _within(firsts, steps, counts, (-(2**62), start)) if number else 0
        taken = _within(firsts, steps, counts, (-(2**62), end))
        packets += taken - skipped
        held = np.clip(taken - before, 0, counts) - np.clip(skipped - before, 0, counts)
        ticks += int((held * steps).sum())
    return packets, ticks


def _decoder(config: bytes) -> tuple[int, bytes]:
    """Object type and decoder configuration out of an `esds`; ISO/IEC 14496-1."""
    at, object_type = 0, 0
    while at + 2 <= len(config):
        tag = config[at]
        at += 1
        length = 0
        while at < len(config):
            byte = config[at]
            at += 1
            length = length << 7 | byte & 0x7F
            if not byte & 0x80:
                break
        if tag == 3:
            flags = config[at + 2]
            at += 3 + 2 * (flags >> 7) + 2 * (flags >> 5 & 1)
        elif tag == 4:
            object_type = config[at]
            at += 13
        elif tag == 5:
            return object_type, config[at : at + length]
        else:
            at += length
    return object_type, b""


def _aac(config: bytes, stated: int) -> tuple[int, int, int]:
    """Core rate, rate of the decoded sound and samples of a packet; ISO/IEC 14496-3, 1.6.2.1."""
    bits = "".join(f"{byte:08b}" for byte in config[:64])
    place = 0

    def take(count: int) -> int:
        nonlocal place
        place += count
        return int(bits[place - count : place] or "0", 2)

    def take_type() -> int:
        kind = take(5)
        return 32 + take(6) if kind == 31 else kind

    def take_rate() -> int:
        index = take(4)
        return take(24) if index == 15 else (_RATES[index] if index < len(_RATES) else stated)

    if len(bits) < 16:
        return stated, stated, 1024
    kind = take_type()
    core = rate = take_rate()
    take(4)
    if kind in {5, 29}:
        rate = take_rate()
        kind = take_type()
    frame = 960 if take(1) else 1024
    mark = bits.find(f"{0x2B7:011b}00101", place)
    if rate == core and mark >= 0:
        place = mark + 16
        if take(1):
            rate = take_rate()
    return core, rate, frame
