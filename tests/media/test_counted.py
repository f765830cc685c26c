from __future__ import annotations

import io
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
from PIL import Image

from dabom.errors import InvalidMedia
from dabom.media.counted import count, frames_counted

if TYPE_CHECKING:
    from collections.abc import Sequence


def _clip(times: Sequence[int], unit: Fraction, container: str = "mp4", **options: str) -> bytes:
    octets = io.BytesIO()
    with av.open(octets, "w", format=container) as out:
        track = out.add_stream(
            "libx264", rate=30, options={"g": "12", "bf": "0", "sc_threshold": "0", **options}
        )
        track.width, track.height, track.pix_fmt = 64, 48, "yuv420p"
        track.codec_context.time_base = unit
        for number, place in enumerate(times):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), number, np.uint8), format="rgb24")
            frame.pts, frame.time_base = place, unit
            out.mux(track.encode(frame))
        out.mux(track.encode(None))
    return octets.getvalue()


def _cut(content: bytes, skipped: int) -> bytes:
    """Copied from the key frame before frame `skipped` on; an edit list hides the lead."""
    octets = io.BytesIO()
    with av.open(io.BytesIO(content), "r") as given, av.open(octets, "w", format="mp4") as out:
        track = given.streams.video[0]
        copy = out.add_stream_from_template(track)
        offset = int(skipped / 30 / (track.time_base or 1))
        given.seek(offset, stream=track, backward=True)
        for packet in given.demux(track):
            if packet.dts is not None and packet.pts is not None:
                packet.stream, packet.pts, packet.dts = copy, packet.pts - offset, packet.dts - offset
                out.mux(packet)
    return octets.getvalue()


_UNIT = Fraction(1, 30)
_SLOWER = [*range(30), *range(30, 150, 3)]
_UNEVEN = [index + index // 3 for index in range(75)]


def test_an_even_clip_has_the_frames_of_its_header() -> None:
    found = count(_clip(range(90), _UNIT)).clip
    assert found is not None
    assert (found.frames, found.decodable, found.fps, found.audio_samples) == (90, 90, 30.0, None)


def test_frames_that_an_edit_list_hides_do_not_count() -> None:
    found = count(_cut(_clip(range(180), _UNIT), 43)).clip
    assert found is not None
    assert (found.frames, found.decodable) == (137, 137)


@pytest.mark.parametrize(
    ("times", "container", "frames", "decodable"),
    # what OpenCV's CAP_PROP_POS_FRAMES tells after a seek to the end of these very files
    [(_UNEVEN, "mp4", 75, 75), (_SLOWER, "mp4", 62, 70), (_UNEVEN, "matroska", 95, 75)],
)
def test_where_the_rate_varies_the_server_is_believed_not_the_file(
    times: list[int], container: str, frames: int, decodable: int
) -> None:
    found = count(_clip(times, _UNIT, container)).clip
    assert found is not None
    assert (found.frames, found.decodable, found.estimated) == (frames, decodable, False)


def test_with_b_frames_too_it_is_an_estimate() -> None:
    found = count(_clip(_SLOWER, _UNIT, bf="2")).clip
    assert found is not None
    assert found.estimated


@pytest.mark.parametrize(
    ("stated", "shown", "counted"),
    [(90, 90, 90), (91, 90, 91), (92, 90, 90), (115, 77, 77), (2, 2, 2), (1, 1, 1)],
)
def test_one_frame_of_difference_is_let_pass(stated: int, shown: int, counted: int) -> None:
    times = [index / 30 for index in range(shown)]
    assert frames_counted(stated, 30.0, times, range(0, shown, 12)) == counted


def test_sound_is_counted_for_each_channel() -> None:
    octets = io.BytesIO()
    with av.open(octets, "w", format="wav") as out:
        track = out.add_stream("pcm_s16le", rate=44_100, layout="stereo")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 2_000), np.int16), format="s16", layout="stereo")
        frame.sample_rate, frame.pts, frame.time_base = 44_100, 0, Fraction(1, 44_100)
        out.mux(track.encode(frame))
        out.mux(track.encode(None))
    found = count(octets.getvalue())
    assert (found.kind, found.audio_samples, found.audio_rate) == ("audio", 1_000, 44_100)


def test_a_picture_too_large_to_decode_is_told_by_its_header() -> None:
    header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (20_000).to_bytes(4) * 2 + b"\x08\x02\0\0\0"
    found = count(header + bytes(64))
    assert (found.kind, found.width, found.height) == ("image", 20_000, 20_000)


@pytest.mark.parametrize("content", [b"", b"text", b"\x89PNG\r\n\x1a\n", b"\0\0\0\x18ftypisom" + bytes(64)])
def test_what_nobody_can_read_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidMedia):
        count(content)


def test_a_turned_picture_is_upright() -> None:
    octets, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (80, 60)).save(octets, "JPEG", exif=exif)
    found = count(octets.getvalue())
    assert (found.width, found.height) == (60, 80)
