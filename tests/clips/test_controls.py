from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.clips.make_recordings import Recorded, decode, make, numbers

from dabom.clips.controls import KINDS, choose_other, control_bytes, make_control
from dabom.clips.cut import Cut, cut_clips
from dabom.clips.manifest import Clip, read_manifest
from dabom.errors import ConfigError, InvalidMedia

if TYPE_CHECKING:
    from dabom.media.controls import ControlKind

SAMPLE = Path(__file__).parents[2] / "samples/clips/news/broadcast/0001_0000-0006.mp4"


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("clips")
    made = cut_clips(Cut(make(folder / "in.mp4", Recorded(seconds=3)), folder / "out", every_s=1.0)).made
    return [folder / "out" / clip.clip for clip in made]


def line(path: Path) -> Clip:
    return next(clip for clip in read_manifest(path.parent) if clip.clip == path.name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_control_keeps_one_half_and_costs_the_same(
    clips: list[Path], tmp_path: Path, kind: ControlKind
) -> None:
    clip, other = line(clips[1]), line(clips[2])  # the first picture of the first clip is black
    made = make_control(clips[1], tmp_path, kind, clips[2])
    frames, samples = decode(tmp_path / made.clip)
    assert (made.control, made.origin, made.tokens) == (kind, clip.clip, clip.tokens)
    assert (made.frames, made.fps, made.samples, len(frames)) == (10, 10, clip.samples, 10)
    assert read_manifest(tmp_path) == [made]
    if kind in {"blackout", "freeze"}:
        assert made.audio_sha256 == clip.audio_sha256
        assert made.video_sha256 != clip.video_sha256
        assert made.freeze == 1.0
        assert made.black == (1.0 if kind == "blackout" else 0.0)
    else:
        assert made.video_sha256 == clip.video_sha256
        assert made.audio_sha256 != clip.audio_sha256
    if kind == "blackout":
        assert max(frame.max() for frame in frames) < 20
    if kind == "freeze":
        assert len(set(numbers(tmp_path / made.clip))) == 1
    if kind == "mute":
        assert float(np.abs(samples).max()) < 1e-4
        assert made.silence == 1.0
    if kind == "swap-audio":
        assert made.audio_sha256 == other.audio_sha256


@pytest.mark.parametrize("kind", ["blackout", "mute", "freeze"])
def test_clips_that_others_cut_have_controls_too(tmp_path: Path, kind: ControlKind) -> None:
    made = make_control(SAMPLE, tmp_path, kind)
    assert (made.frames, made.fps, made.start_s, made.end_s) == (150, 25, 0, 6)


def test_a_control_in_memory(clips: list[Path], tmp_path: Path) -> None:
    made = make_control(clips[0], tmp_path, "mute")
    assert control_bytes(clips[0].read_bytes(), "mute") == (tmp_path / made.clip).read_bytes()


def test_exchanged_sound_needs_another_clip(clips: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InvalidMedia, match="needs another clip"):
        control_bytes(clips[0].read_bytes(), "swap-audio")
    assert control_bytes(clips[0].read_bytes(), "swap-audio", clips[1].read_bytes())


def test_a_finished_control_is_kept_and_another_kind_is_not_overwritten(
    clips: list[Path], tmp_path: Path
) -> None:
    made = make_control(clips[0], tmp_path, "mute")
    before = (tmp_path / made.clip).stat().st_mtime_ns
    assert make_control(clips[0], tmp_path, "mute") == made
    assert (tmp_path / made.clip).stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match="is there already and no blackout"):
        make_control(clips[0], tmp_path, "blackout")
    assert make_control(clips[0], tmp_path, "blackout", force=True).control == "blackout"
    with pytest.raises(ConfigError, match="the folder of the clip itself"):
        make_control(clips[0], clips[0].parent, "mute", force=True)


def test_a_clip_without_sound_has_no_control(tmp_path: Path) -> None:
    dumb = make(tmp_path / "dumb.mp4", Recorded(seconds=1, tracks=()))
    with pytest.raises(InvalidMedia, match="has no sound"):
        make_control(dumb, tmp_path / "out", "blackout")
    assert not list((tmp_path / "out").glob("*.part"))
    assert not list((tmp_path / "out").glob(".*"))


def test_sound_is_taken_from_far_away() -> None:
    clips = [Path(f"{n}.mp4") for n in range(10)]
    assert choose_other(clips[7], clips) == clips[2]
    with pytest.raises(ConfigError, match="--sound-of"):
        choose_other(clips[0], clips[:1])
