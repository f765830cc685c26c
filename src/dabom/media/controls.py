"""Controls: a clip with one modality removed or exchanged, and the packets of the other as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import av
import numpy as np

from dabom.errors import InvalidMedia
from dabom.media import FileSource, read_facts
from dabom.media.encoding import OPTIONS, TAGS, add_sound, black, encode_sound, told
from dabom.media.recording import open_recording, picture_track

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ControlKind: TypeAlias = Literal["blackout", "mute", "freeze", "swap-audio"]
_CODING = {"preset": "veryfast", "crf": "28", "bf": "0", "threads": "1", "flags": "+bitexact"}


def write_control(source: Path, target: Path, kind: ControlKind, sound_of: Path | None = None) -> None:
    """Write the control of the clip `source` to `target`.

    `blackout` and `freeze` (the first picture stays) code the picture anew, at the same times, and copy the
    packets of the sound. `mute` and `swap-audio` (the sound is that of the clip `sound_of`) copy the packets
    of the picture. Raises InvalidMedia and StoreError.
    """
    if kind == "swap-audio" and sound_of is None:
        raise InvalidMedia(f"{source}: its swap-audio needs another clip, whose sound it takes")
    other = sound_of if kind == "swap-audio" and sound_of is not None else source
    with open_recording(source) as clip, open_recording(other) as second:
        picture = picture_track(clip)
        if picture is None or picture.codec_context is None:
            raise InvalidMedia(f"{source}: has no picture; a control is made from a clip with both")
        for path, file in ((source, clip), (other, second)):
            if not file.streams.audio:
                raise InvalidMedia(f"{path}: has no sound; a control is made from a clip with both")
        try:
            with told(target), av.open(f"file:{target}", "w", format="mp4", options=OPTIONS) as out:
                if kind in {"blackout", "freeze"}:
                    _new_picture(out, clip, picture, still=kind == "freeze")
                elif kind == "mute":
                    _mute(out, source, clip, picture)
                else:
                    _copy(out, [(clip, picture), (second, second.streams.audio[0])])
        except BaseException:
            target.unlink(missing_ok=True)  # also when it is interrupted
            raise


def _copy(out: Any, tracks: Iterable[tuple[Any, Any]]) -> None:
    copies = [(file, track, out.add_stream_from_template(track)) for file, track in tracks]
    for file, track, copy in copies:
        for packet in _packets(file, track):
            packet.stream = copy
            out.mux(packet)


def _packets(file: Any, track: Any) -> list[Any]:
    return [packet for packet in file.demux(track) if packet.dts is not None and packet.size]


def _new_picture(out: Any, clip: Any, track: Any, still: bool) -> None:
    sound = clip.streams.audio[0]
    packets = [packet for packet in clip.demux([track, sound]) if packet.dts is not None and packet.size]
    pictures = [packet for packet in packets if packet.stream_index == track.index]
    shown = sorted(packet.pts for packet in pictures if packet.pts is not None and not packet.is_discard)
    frame = _first(pictures) if still else black(track.codec_context.width, track.codec_context.height)
    video = out.add_stream("libx264", rate=track.average_rate, options=_CODING | {"g": str(len(shown))})
    video.width, video.height, video.pix_fmt = frame.width, frame.height, "yuv420p"
    video.codec_context.time_base = track.time_base
    video.codec_context.sample_aspect_ratio = track.sample_aspect_ratio or 1
    for tag in TAGS:
        setattr(video.codec_context, tag, getattr(track.codec_context, tag))
    copy = out.add_stream_from_template(sound)
    for at in shown:
        frame.pts, frame.time_base = at, track.time_base
        out.mux(video.encode(frame))
    out.mux(video.encode(None))
    for packet in packets:
        if packet.stream_index == sound.index:
            packet.stream = copy
            out.mux(packet)


def _first(pictures: list[Any]) -> Any:
    for packet in [*pictures, None]:
        frames = packet.decode() if packet else pictures[0].stream.codec_context.decode(None)
        for frame in frames:
            whole = frame.reformat(format="yuv420p")
            whole.pict_type = 0
            return whole
    raise InvalidMedia("clip is damaged: no frame could be decoded")


def _mute(out: Any, source: Path, clip: Any, picture: Any) -> None:
    sound = clip.streams.audio[0]
    with source.open("rb") as file:
        samples = read_facts(FileSource(file)).audio_samples
    channels = 1 if sound.codec_context.channels == 1 else 2
    rate = sound.codec_context.sample_rate
    copy = out.add_stream_from_template(picture)
    track = add_sound(out, rate, "mono" if channels == 1 else "stereo")
    for packet in _packets(clip, picture):
        packet.stream = copy
        out.mux(packet)
    for packet in encode_sound(track, np.zeros((channels, samples), np.float32), rate):
        out.mux(packet)
