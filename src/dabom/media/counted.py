"""Counting by decoding: the frames and samples that a model server finds in a file.

Headers often tell the same without decoding (`read_facts`); this is for a person who wants to be sure.
"""

from __future__ import annotations

import io
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import av

from dabom.errors import InvalidMedia
from dabom.families import VideoFacts
from dabom.kinds import sniff
from dabom.media.containers import open_container
from dabom.media.headers import picture_size
from dabom.media.limits import MAX_PIXELS
from dabom.media.picture import read_picture

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD_BYTES = 65_536
_LEAD = 16
"""Frames that OpenCV goes back before a place it seeks."""
_ROUNDING_S = 0.002


@dataclass(frozen=True)
class Counted:
    """One file: `kind` is image, video or audio, the sides are upright pixels, a clip alone has `clip`."""

    kind: str
    width: int = 0
    height: int = 0
    seconds: float = 0.0
    clip: VideoFacts | None = None
    audio_samples: int = 0
    audio_rate: int = 0


def count(content: bytes) -> Counted:
    """What a server finds in a picture, clip or sound. Raises InvalidMedia when it can find nothing."""
    mime = sniff(content[:512]) or ""
    if not content or mime.startswith("image/"):
        size = picture_size(content[:_HEAD_BYTES]) if mime != "image/jpeg" else None
        if size is None or size[0] * size[1] <= MAX_PIXELS:
            picture = read_picture(content)
            size = picture.width, picture.height
        return Counted("image", *size)
    with open_container(
        io.BytesIO(content), content, "sound" if mime.startswith("audio/") else "video"
    ) as file:
        pictures = [track for track in file.streams.video if not _is_cover(track)]
        return _clip(file, pictures[0]) if pictures else _sound(file)


def frames_counted(stated: int, fps: float, times: Sequence[float], keys: Sequence[int]) -> int:
    """Frames that vLLM believes a clip to have, by what OpenCV tells it.

    `stated` is the header's number, `times` are seconds of the frames that decode, from the first one on,
    and `keys` the positions of key frames among them. vLLM seeks the end and takes the place it arrives at
    for the number of frames when that is smaller by two or more: exact when an edit list hides frames, a
    guess when the rate varies. Source: vLLM `video_decoders/opencv.py`, get_video_metadata; OpenCV
    `cap_ffmpeg_impl.hpp`, seek.
    """
    lead = _LEAD
    while True:
        start = max(stated - lead, 0)
        key = max((place for place in keys if times[place] <= start / fps + 1e-9), default=0)
        place = math.floor(times[key] * fps + 0.5)
        if place <= stated - 1 or start == 0:
            break
        lead = lead * 2 if lead < _LEAD else lead * 3 // 2
    arrived = min(place + len(times) - key, stated)
    at_end = place + len(times) - key <= stated
    return arrived if at_end and 0 < arrived < stated - 1 else stated


def _clip(file: Any, track: Any) -> Counted:
    if track.codec_context is None:
        raise InvalidMedia("video is coded in a way that is not read")
    track.thread_type = "AUTO"
    fps = float(track.average_rate or track.guessed_rate or 0)
    sounds = [other for other in file.streams.audio if other.codec_context is not None][:1]
    times: list[float] = []
    keys: list[int] = []
    samples = 0
    width, height = track.codec_context.width, track.codec_context.height
    for frame in _frames(file, [track, *sounds]):
        if isinstance(frame, av.AudioFrame):
            samples += frame.samples
            continue
        if not times and round(frame.rotation / 90) % 2:
            width, height = height, width
        if frame.key_frame:
            keys.append(len(times))
        times.append(
            float(frame.pts * frame.time_base) if frame.pts is not None else len(times) / (fps or 25)
        )
    if not times:
        raise InvalidMedia("video is damaged: no frame could be decoded")
    stated = track.frames or math.floor(_seconds(file, track) * fps + 0.5) or len(times)
    times = [second - times[0] for second in times]
    counted = frames_counted(stated, fps, times, keys) if fps > 0 else len(times)
    rate = sounds[0].codec_context.sample_rate if sounds else 0
    unsure = counted != len(times) and bool(track.codec_context.has_b_frames) and _varies(times)
    heard = samples if sounds else None
    clip = VideoFacts(width, height, counted, fps, heard, rate, unsure, decodable=len(times))
    return Counted("video", width, height, _seconds(file, track), clip, samples, rate)


def _varies(times: Sequence[float]) -> bool:
    """The rate varies by more than rounding. With B-frames the seek of OpenCV then ends where it likes."""
    gaps = [after - before for before, after in itertools.pairwise(times)]
    return bool(gaps) and max(gaps) - min(gaps) > _ROUNDING_S


def _sound(file: Any) -> Counted:
    sounds = [track for track in file.streams.audio if track.codec_context is not None]
    if not sounds:
        raise InvalidMedia("file holds no picture and no sound track that is read")
    samples = sum(frame.samples for frame in _frames(file, sounds[:1]))
    rate = sounds[0].codec_context.sample_rate
    if not samples or not rate:
        raise InvalidMedia("sound is damaged: no sample could be decoded")
    return Counted("audio", seconds=samples / rate, audio_samples=samples, audio_rate=rate)


def _frames(file: Any, tracks: list[Any]) -> Any:
    try:
        for packet in file.demux(tracks):
            try:
                yield from packet.decode()
            except av.FFmpegError:
                continue  # the rest of a damaged file still counts, as on the server
    except av.FFmpegError:
        return


def _seconds(file: Any, track: Any) -> float:
    if track.duration and track.time_base:
        return float(track.duration * track.time_base)
    return file.duration / av.time_base if file.duration else 0.0


def _is_cover(track: Any) -> bool:
    return bool(track.disposition & av.stream.Disposition.attached_pic)
