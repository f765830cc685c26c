"""Rate and number of samples of a sound file, from its headers. Nothing is decoded."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from dabom.media.values import MediaFacts

if TYPE_CHECKING:
    from dabom.media.sources import Source

_MAX_CHUNKS = 256
_TAIL_BYTES = 65_536
_SCAN_BYTES = 16_384
_ADTS_RATES = (96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350)
_MP3_RATES = (44100, 48000, 32000)
# kbit/s by index of layer III, for MPEG 1 and for MPEG 2 and 2.5
_MP3_KBITS = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
)
_LAME_DELAY = 529
"""Samples that FFmpeg drops besides the encoder's own delay."""


def sound_facts(mime: str, source: Source) -> MediaFacts:
    """The facts of a sound file whose magic bytes say `mime`; may raise `struct.error` or `IndexError`."""
    readers = {
        "audio/wav": _wav,
        "audio/flac": _flac,
        "audio/mpeg": _mp3,
        "audio/aac": _adts,
        "audio/ogg": _ogg,
    }
    reader = readers.get(mime)
    return MediaFacts("audio", mime, problem="unsupported") if reader is None else reader(mime, source)


def _sound(mime: str, samples: float, rate: int, estimated: bool = False, problem: str = "") -> MediaFacts:
    count = max(0, round(samples))
    return MediaFacts(
        "audio",
        mime,
        seconds=count / rate if rate else 0.0,
        audio_samples=count,
        audio_rate=rate,
        estimated=estimated or bool(problem),
        problem=problem if rate else "damaged",
    )


def _wav(mime: str, source: Source) -> MediaFacts:
    at, rate, block, counted, bits = 12, 0, 0, 0, 0
    code = 1
    for _ in range(_MAX_CHUNKS):
        intro = source.read(at, 8)
        if len(intro) < 8:
            break
        kind, length = struct.unpack("<4sI", intro)
        if kind == b"fmt ":
            code, _, rate, _, block, bits = struct.unpack("<HHIIHH", source.read(at + 8, 16))
        elif kind == b"fact":
            counted = int.from_bytes(source.read(at + 8, 4), "little")
        elif kind == b"data":
            there = source.size - at - 8
            streamed = length in {0, 0xFFFFFFFF}
            held = there if streamed else min(length, there)
            plain = code in {1, 3, 6, 7, 0xFFFE}
            samples = held / block if plain and block else counted
            problem = "" if streamed or length <= there else "truncated"
            return _sound(mime, samples // 1, rate, not plain or not bits, problem)
        at += 8 + length + length % 2
    return _sound(mime, 0, rate, problem="truncated")


def _flac(mime: str, source: Source) -> MediaFacts:
    head = source.read(0, 42)
    packed = int.from_bytes(head[18:26], "big")
    rate, samples = packed >> 44, packed & (1 << 36) - 1
    if samples:
        return _sound(mime, samples, rate)
    channels, bits = (packed >> 41 & 7) + 1, (packed >> 36 & 31) + 1
    # not stated; speech and music take six tenths of the plain size
    return _sound(mime, source.size * 8 / (channels * bits * 0.6), rate, estimated=True)


def _id3_bytes(source: Source) -> int:
    head = source.read(0, 10)
    if not head.startswith(b"ID3"):
        return 0
    return 10 + sum((head[6 + n] & 0x7F) << 7 * (3 - n) for n in range(4))


def _mp3(mime: str, source: Source) -> MediaFacts:
    start = _id3_bytes(source)
    data = source.read(start, _SCAN_BYTES)
    at = next((n for n in range(len(data) - 4) if _mp3_frame(data[n : n + 4])), -1)
    if at < 0:
        return MediaFacts("audio", mime, problem="damaged")
    rate, samples, length = _mp3_frame(data[at : at + 4]) or (0, 0, 1.0)
    first, mono = data[at + 1] >> 3 & 3, data[at + 3] >> 6 == 3
    tag = at + 4 + ((17 if mono else 32) if first == 3 else (9 if mono else 17))
    if data[tag : tag + 4] in {b"Xing", b"Info"} and data[tag + 7] & 1:
        flags, frames = struct.unpack_from(">II", data, tag + 4)
        lame = tag + 12 + 4 * (flags >> 1 & 1) + 100 * (flags >> 2 & 1) + 4 * (flags >> 3 & 1)
        packed = int.from_bytes(data[lame + 21 : lame + 24], "big")
        delay, padding = packed >> 12, packed & 0xFFF
        if not data[lame : lame + 4].isalnum():
            return _sound(mime, frames * samples, rate)
        ending = max(0, padding - _LAME_DELAY)
        return _sound(mime, frames * samples - delay - _LAME_DELAY - ending, rate)
    held = source.size - start - at - (128 if source.read(source.size - 128, 3) == b"TAG" else 0)
    return _sound(mime, round(held / length) * samples, rate, estimated=True)


def _mp3_frame(head: bytes) -> tuple[int, int, float] | None:
    """Rate, samples and mean bytes of a layer III frame; None when these four bytes are no header of one."""
    if head[0] != 0xFF or head[1] & 0xE0 != 0xE0 or head[1] >> 1 & 3 != 1:
        return None
    version, index, rate_index = head[1] >> 3 & 3, head[2] >> 4, head[2] >> 2 & 3
    if version == 1 or not 0 < index < 15 or rate_index == 3:
        return None
    rate = _MP3_RATES[rate_index] >> {3: 0, 2: 1, 0: 2}[version]
    samples = 1152 if version == 3 else 576
    return rate, samples, samples / 8 * _MP3_KBITS[version != 3][index] * 1000 / rate


def _adts(mime: str, source: Source) -> MediaFacts:
    """Frames are counted in the first 16 KiB, and the rest is taken to be alike."""
    data = source.read(0, _SCAN_BYTES)
    at = frames = 0
    index = data[2] >> 2 & 15
    rate = _ADTS_RATES[index] if index < len(_ADTS_RATES) else 0
    while at + 7 <= len(data) and data[at] == 0xFF and data[at + 1] & 0xF6 == 0xF0:
        length = (data[at + 3] & 3) << 11 | data[at + 4] << 3 | data[at + 5] >> 5
        if length < 7:
            break
        frames += 1 + (data[at + 6] & 3)
        at += length
    if not at:
        return MediaFacts("audio", mime, problem="damaged")
    exact = at == source.size
    total = frames if exact else round(frames * source.size / at)
    return _sound(mime, total * 1024, rate, estimated=not exact)


def _ogg(mime: str, source: Source) -> MediaFacts:
    """The position that the last page states, in samples."""
    head = source.read(0, 512)
    start = 27 + head[26]
    skipped, rate = 0, 0
    if head[start : start + 8] == b"OpusHead":
        rate, skipped = 48_000, int.from_bytes(head[start + 10 : start + 12], "little")
    elif head[start : start + 7] == b"\x01vorbis":
        rate = int.from_bytes(head[start + 12 : start + 16], "little")
    elif head[start : start + 5] == b"\x7fFLAC":
        rate = int.from_bytes(head[start + 27 : start + 30], "big") >> 4
    tail = source.read(max(0, source.size - _TAIL_BYTES), _TAIL_BYTES)
    last = tail.rfind(b"OggS")
    if last < 0 or not rate:
        return _sound(mime, 0, rate, problem="damaged" if not rate else "truncated")
    granule, final = struct.unpack_from("<q", tail, last + 6)[0], bool(tail[last + 5] & 4)
    return _sound(mime, granule - skipped, rate, estimated=not final)
