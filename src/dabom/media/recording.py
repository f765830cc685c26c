"""A recording on the disk, of any length: what it holds, told from its headers and its first frames."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av

from dabom.errors import InvalidMedia, MediaUnsupported
from dabom.kinds import sniff
from dabom.media.containers import DEMUXERS
from dabom.media.limits import MAX_FRAME_PIXELS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HEAD_BYTES = 512
_STUDIO = ((0, b"\x06\x0e\x2b\x34\x02\x05\x01\x01", "mxf"), (0, b"\x00\x00\x01\xba", "mpeg"))
"""What broadcasters store besides the kinds that a model server reads: place, bytes, demuxer."""
_LISTED = frozenset({"mov", "matroska", "avi", "mxf", "wav", "flac"})
"""Demuxers that have a list of places: a seek arrives at a key frame."""
_HDR = frozenset({16, 18})
"""Transfer characteristics of PQ and HLG; ITU-T H.273, table 3."""
_PROGRESSIVE = frozenset({0, 1})
"""Field orders that FFmpeg calls unknown and progressive."""
_NO_DECODER = "MPEG-H, AC-4 or another coding that FFmpeg has no decoder for"
_LOOKS = 12
"""Frames that are decoded to learn how the picture is stored."""


@dataclass(frozen=True)
class SoundTrack:
    """One sound track. `index` is its place in the file, `language` an ISO 639 code or empty."""

    index: int
    language: str
    codec: str
    readable: bool
    default: bool
    rate: int = 0
    channels: int = 0


@dataclass(frozen=True)
class Recording:
    """What a recording holds.

    The sides are those of a stored frame; `turns` are quarters to the left until it stands upright; `aspect`
    is the width of a pixel by its height. `origin_s` is the file's own time of its first picture, or of its
    first sample where it has no picture; every time that Dabom tells counts from there. `duration_s` is
    None when the file does not tell.
    """

    width: int
    height: int
    fps: Fraction
    aspect: Fraction
    turns: int
    interlaced: bool
    hdr: bool
    origin_s: float
    duration_s: float | None
    sounds: tuple[SoundTrack, ...]
    listed: bool

    @property
    def has_picture(self) -> bool:
        """There is a picture track."""
        return self.width > 0


@contextmanager
def open_recording(path: Path) -> Iterator[Any]:
    """A PyAV container over a file. Raises InvalidMedia."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as fault:
        raise InvalidMedia(f"{path}: cannot be read ({fault.strerror})") from None
    demuxer = _demuxer(head)
    if demuxer is None:
        raise InvalidMedia(
            f"{path}: not a recording that is read; MP4, QuickTime, Matroska, MPEG-TS, MPEG-PS, MXF, AVI "
            "and the usual sound files are"
        )
    try:
        # The demuxer is forced and only files may be opened: a file cannot lead to another file or address.
        container = av.open(
            f"file:{path}",
            format=demuxer,
            metadata_errors="ignore",
            container_options={"protocol_whitelist": "file"},
        )
    except (av.FFmpegError, ValueError):
        raise InvalidMedia(
            f"{path}: damaged, or cut off before its index; copy it again from where it was recorded"
        ) from None
    try:
        yield container
    finally:
        container.close()


def read_recording(path: Path) -> Recording:
    """What a recording holds. Decodes a few frames. Raises InvalidMedia."""
    with open_recording(path) as container:
        picture = picture_track(container)
        sounds = tuple(_sound(stream) for stream in container.streams.audio)
        if picture is None and not sounds:
            raise InvalidMedia(f"{path}: holds no picture and no sound track")
        main = picture or container.streams.audio[0]
        origin = _origin(container, main)
        listed = container.format.name.split(",")[0] in _LISTED
        duration = _duration(container, main, origin)
        if picture is None:
            zero = Fraction(0)
            return Recording(0, 0, zero, Fraction(1), 0, False, False, origin, duration, sounds, listed)
        return _with_picture(path, container, picture, (origin, duration, sounds, listed))


def picture_track(container: Any) -> Any:
    """The first picture track that is no cover picture, or None."""
    cover = av.stream.Disposition.attached_pic
    return next((stream for stream in container.streams.video if not stream.disposition & cover), None)


def choose_sound(path: Path, recording: Recording, wanted: str = "") -> SoundTrack | None:
    """The sound track to take: that of the language `wanted`, else the default one; None without any.

    `wanted` is an ISO 639 code, or a track's number counted from 1. Raises InvalidMedia when there is no
    such track, and MediaUnsupported when it cannot be decoded.
    """
    if not recording.sounds or wanted == "none":
        return None
    if wanted.isdigit() and 0 < int(wanted) <= len(recording.sounds):
        found: SoundTrack | None = recording.sounds[int(wanted) - 1]
    elif wanted:
        found = next((track for track in recording.sounds if track.language == wanted.lower()), None)
    else:
        found = max(recording.sounds, key=lambda track: track.default)
    if found is None:
        there = ", ".join(
            f"{number} {track.language or '-'}" for number, track in enumerate(recording.sounds, 1)
        )
        raise InvalidMedia(f"{path}: has no sound track {wanted!r}; it has: {there}")
    if not found.readable:
        raise MediaUnsupported(
            f"{path}: its sound ({found.codec}) cannot be decoded; give a copy whose sound is AAC or PCM, "
            "choose another track, or choose none (--sound none) for clips with silence"
        )
    return found


def _demuxer(head: bytes) -> str | None:
    for place, mark, name in _STUDIO:
        if head[place:].startswith(mark):
            return name
    if head[4:5] == b"\x47" and head[196:197] == b"\x47":
        return "mpegts"  # the 192-byte packets of Blu-ray and of cameras
    return DEMUXERS.get(sniff(head) or "")


def _with_picture(path: Path, container: Any, stream: Any, rest: tuple[Any, ...]) -> Recording:
    context = stream.codec_context
    if context is None:
        raise MediaUnsupported(
            f"{path}: its picture is coded in a way that is not read; give a copy in H.264 or HEVC"
        )
    if context.width * context.height > MAX_FRAME_PIXELS:
        raise InvalidMedia(
            f"{path}: frames have {context.width * context.height:,} pixels; at most {MAX_FRAME_PIXELS:,}"
        )
    interlaced, turns, transfer = context.field_order not in _PROGRESSIVE, 0, context.color_trc
    looked = False
    for frame in _first_frames(container, stream):
        interlaced = interlaced or frame.interlaced_frame
        turns = round(frame.rotation / 90) % 4
        transfer = frame.color_trc if frame.color_trc in _HDR else transfer
        looked = True
    if not looked or not context.width:
        raise InvalidMedia(f"{path}: damaged: no frame of its picture could be decoded")
    aspect = Fraction(stream.sample_aspect_ratio or context.sample_aspect_ratio or 1) or Fraction(1)
    return Recording(
        context.width,
        context.height,
        Fraction(stream.average_rate or stream.guessed_rate or 25),
        aspect,
        turns,
        interlaced,
        transfer in _HDR,
        *rest,
    )


def _first_frames(container: Any, stream: Any) -> Iterator[Any]:
    seen = 0
    try:
        for packet in container.demux(stream):
            try:
                for frame in packet.decode():
                    yield frame
                    seen += 1
            except av.FFmpegError:
                continue  # a damaged beginning is no reason to give up
            if seen >= _LOOKS:
                return
    except av.FFmpegError:
        return


def _sound(stream: Any) -> SoundTrack:
    context = stream.codec_context
    readable = context is not None and bool(context.sample_rate)
    codec = context.name if context is not None else _NO_DECODER
    language = (stream.metadata.get("language") or stream.language or "").lower()
    return SoundTrack(
        stream.index,
        "" if language == "und" else language,
        codec,
        readable,
        bool(stream.disposition & av.stream.Disposition.default),
        context.sample_rate or 0 if context is not None else 0,
        context.channels or 0 if context is not None else 0,
    )


def _origin(container: Any, stream: Any) -> float:
    if stream.start_time is not None and stream.time_base:
        return float(stream.start_time * stream.time_base)
    return container.start_time / av.time_base if container.start_time is not None else 0.0


def _duration(container: Any, stream: Any, origin: float) -> float | None:
    if stream.duration and stream.time_base:
        return float(stream.duration * stream.time_base)
    if not container.duration:
        return None
    begin = container.start_time / av.time_base if container.start_time is not None else 0.0
    end_s: float = begin + container.duration / av.time_base
    return max(0.0, end_s - origin)
