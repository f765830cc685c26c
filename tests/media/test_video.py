from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from dabom.errors import InvalidMedia
from dabom.media import Sampling, open_pictures, open_video

if TYPE_CHECKING:
    from pathlib import Path


def jpeg(colour: str) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (64, 48), colour).save(out, "JPEG")
    return out.getvalue()


def sampled_times(content: bytes, sampling: Sampling) -> list[float]:
    with open_video(content, sampling) as video:
        return [round(frame.time_s, 2) for frame in video.frames if frame.sampled]


def test_facts_and_all_frames(clip: bytes) -> None:
    with open_video(clip, Sampling()) as video:
        frames = sum(1 for _ in video.frames)
        assert (video.width, video.height, video.fps, video.has_sound) == (640, 360, 25.0, True)
        assert video.stated_duration_s == pytest.approx(6.0)
    assert frames == 150


def test_two_frames_a_second_by_default(clip: bytes) -> None:
    times = sampled_times(clip, Sampling())
    assert len(times) == 12
    assert times == pytest.approx([index / 2 for index in range(12)], abs=0.04)


def test_rate_and_count_can_be_asked_for(clip: bytes) -> None:
    assert len(sampled_times(clip, Sampling(fps=1.0))) == 6
    spread = sampled_times(clip, Sampling(num_frames=4))
    assert spread == pytest.approx([0, 2, 4, 5.96], abs=0.05)
    assert sampled_times(clip, Sampling(num_frames=1)) == [0.0]


def test_no_more_frames_than_the_limit(clip: bytes) -> None:
    assert len(sampled_times(clip, Sampling(fps=25.0, max_frames=10))) == 10
    assert len(sampled_times(clip, Sampling(num_frames=1000, max_frames=7))) == 7


def test_display_matrix_turns_the_picture(clip: bytes, turned_clip: bytes) -> None:
    with open_video(clip, Sampling()) as video:
        plain = np.asarray(next(video.frames).picture(), float)
    with open_video(turned_clip, Sampling()) as video:
        turned = np.asarray(next(video.frames).picture(), float)
        assert (video.width, video.height) == (360, 640)
    # The matrix turns clockwise: what was left is at the top.
    assert np.abs(np.rot90(plain, -1) - turned).mean() < 1


def test_a_cut_off_file_gives_what_decodes(clip: bytes) -> None:
    with open_video(clip[: len(clip) // 2], Sampling()) as video:
        frames = list(video.frames)
    assert 20 < len(frames) < 150


def test_a_file_cut_before_its_index_is_refused(clip: bytes) -> None:
    with pytest.raises(InvalidMedia, match="damaged or cut off"), open_video(clip[:1500], Sampling()):
        pass


def test_limits_and_other_kinds(clip: bytes, files: Path) -> None:
    with pytest.raises(InvalidMedia, match="6 s long; the limit is 5 s"), open_video(clip, Sampling(), 5.0):
        pass
    refused = (
        ((files / "audio-only.mp4").read_bytes(), "no picture track"),
        (b"", "0 bytes"),
        (b"#EXTM3U\nfile:///etc/passwd", "unknown bytes"),
        (jpeg("red"), "jpeg"),
    )
    for content, said in refused:
        with pytest.raises(InvalidMedia, match=said), open_video(content, Sampling()):
            pass


def test_stills_make_a_video() -> None:
    video = open_pictures([jpeg("red"), jpeg("green"), jpeg("blue")], 2.0)
    frames = list(video.frames)
    assert [frame.time_s for frame in frames] == [0.0, 0.5, 1.0]
    assert video.stated_duration_s == 1.5
    assert frames[2].thumbnail()[5, 5, 2] > 200
    with pytest.raises(InvalidMedia):
        list(open_pictures([jpeg("red"), b"broken"], 2.0).frames)
