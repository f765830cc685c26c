from __future__ import annotations

import itertools
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
from tests.clips.make_recordings import (
    Recorded,
    Track,
    decode,
    make,
    number_of,
    numbers,
    turned,
    wave,
)

from dabom.clips.cut import Cut, Outcome, cut_clips
from dabom.clips.manifest import MANIFEST, read_manifest
from dabom.clips.profiles import PROFILES
from dabom.errors import ConfigError, InvalidMedia, MediaUnsupported
from dabom.media.cutting import Shown, decode_windows, may_skip
from dabom.media.recording import choose_sound, read_recording
from dabom.media.shape import Shape

if TYPE_CHECKING:
    from pathlib import Path

SMALL = Shape(128, 72, Fraction(10), 10, 1.0, 16_000, 1)


def cut(source: Path, **how: object) -> Outcome:
    return cut_clips(Cut(source, source.parent / "out", every_s=1.0, **how))  # type: ignore[arg-type]


def expected(what: Recorded, start_s: float, fps: int = 10, count: int = 10) -> list[int]:
    """The frame that shows at each place of the grid, by the times alone."""
    times = what.times or tuple(float(n / what.fps) for n in range(round(what.seconds * what.fps)))
    places = (start_s + Fraction(k, fps) for k in range(count))
    return [max(n for n, time in enumerate(times) if time <= place + Fraction(1, 1000)) for place in places]


def test_every_clip_has_the_frames_that_show_at_its_times(tmp_path: Path) -> None:
    what = Recorded()
    made = cut(make(tmp_path / "in.mp4", what)).made
    assert [clip.clip for clip in made] == [f"{n:04d}_{n - 1:04d}-{n:04d}.mp4" for n in range(1, 5)]
    for clip in made:
        assert numbers(tmp_path / "out" / clip.clip) == expected(what, clip.start_s)
        assert (clip.frames, clip.fps, clip.width, clip.height) == (10, 10, 640, 360)
        assert (clip.samples, clip.sample_rate, clip.problems) == (16_384, 16_000, ())
    assert read_manifest(tmp_path / "out") == made
    assert not list((tmp_path / "out").glob(".*"))


def test_a_varying_rate_is_cut_by_time(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    times = tuple(itertools.accumulate(rng.choice([0.02, 0.04, 0.1, 0.25], 40), initial=0.0))
    what = Recorded(times=times, seconds=4)
    made = cut(make(tmp_path / "in.mkv", what), end_s=3.0).made
    assert len(made) == 3
    for clip in made:
        assert numbers(tmp_path / "out" / clip.clip) == expected(what, clip.start_s)


@pytest.mark.parametrize("rate", [Fraction(30_000, 1001), Fraction(60), Fraction(24_000, 1001)])
def test_seed_keeps_size_and_rate_and_neither_doubles_nor_drops_a_frame(
    tmp_path: Path, rate: Fraction
) -> None:
    # Matroska rounds times to milliseconds: that may not show.
    source = make(tmp_path / "in.mkv", Recorded(fps=rate, tracks=(Track(layout="stereo"),)))
    made = cut(source, profile=PROFILES["seed"], end_s=3.0).made
    assert {(clip.frames, clip.width, clip.height) for clip in made} == {(-int(-rate // 1), 128, 72)}
    assert {(clip.samples, clip.sample_rate) for clip in made} == {(48_128, 48_000)}
    for clip in made:
        shown = numbers(tmp_path / "out" / clip.clip)
        first = int(clip.start_s * rate + Fraction(1, 100))
        assert shown == list(range(first, first + clip.frames))
        assert clip.fps == pytest.approx(float(rate), abs=0.01)


def heard(source: Path, shape: Shape, starts: list[float]) -> dict[int, np.ndarray]:
    recording = read_recording(source)
    _, events = decode_windows(source, recording, choose_sound(source, recording), shape, starts)
    return {event.window: event.samples for event in events if not isinstance(event, Shown)}


def test_sound_is_cut_by_the_sample(tmp_path: Path) -> None:
    track = Track(codec="pcm_s16le", rate=16_000)
    what = Recorded(tracks=(track,))
    found = heard(make(tmp_path / "in.mkv", what), SMALL, [0.0, 1.0, 2.5])
    for window, start in enumerate((0, 16_000, 40_000)):
        np.testing.assert_allclose(found[window], wave(what, track)[:, start : start + 16_000], atol=1e-4)


def test_sound_that_begins_late_keeps_its_place(tmp_path: Path) -> None:
    track = Track(codec="pcm_s16le", rate=16_000, late_s=0.5)
    what = Recorded(tracks=(track,))
    source = make(tmp_path / "in.mkv", what)
    found = heard(source, SMALL, [0.0, 1.0])
    assert not found[0][:, :8000].any()
    np.testing.assert_allclose(found[0][:, 8000:], wave(what, track)[:, :8000], atol=1e-4)
    assert [clip.problems for clip in cut(source).made[:2]] == [("sound_gap",), ()]


def test_a_transport_stream_with_a_start_time_and_long_groups(tmp_path: Path) -> None:
    what = Recorded(seconds=8, gop=150, begin_s=31.4)
    made = cut(make(tmp_path / "in.ts", what), start_s=5.0, end_s=8.0).made
    assert [clip.clip for clip in made] == ["0001_0005-0006.mp4", "0002_0006-0007.mp4", "0003_0007-0008.mp4"]
    for clip in made:
        assert numbers(tmp_path / "out" / clip.clip) == expected(what, clip.start_s)
        assert clip.problems == ()


def test_a_seek_that_arrives_behind_the_key_frame_goes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dabom.media.cutting._PREROLL_S", 0.3)
    what = Recorded(seconds=8, gop=150)
    source = make(tmp_path / "in.ts", what)
    made = cut(source, start_s=5.0, end_s=6.0).made
    assert numbers(tmp_path / "out" / made[0].clip) == expected(what, 5.0)


def test_a_start_that_is_not_at_zero(tmp_path: Path) -> None:
    what = Recorded(begin_s=7.0)
    made = cut(make(tmp_path / "in.mkv", what)).made
    assert [numbers(tmp_path / "out" / clip.clip) for clip in made] == [expected(what, n) for n in range(4)]


def test_a_turned_recording_stands_upright(tmp_path: Path) -> None:
    source = turned(make(tmp_path / "in.mp4", Recorded(seconds=1, picture="corner")))
    upright = cut(source).made[0]
    frame = decode(tmp_path / "out" / upright.clip)[0][0]
    assert (upright.width, upright.height) == (640, 360)
    # 72x128 is 202 wide inside 640x360, framed in black; a quarter turn moves the corner to the right.
    assert frame[:, :200].max() < 40
    assert frame[90, 370] > 180
    assert frame[90, 270] < 60
    assert frame[270, 370] < 60
    seed = cut_clips(Cut(source, tmp_path / "seed", every_s=1.0, profile=PROFILES["seed"])).made[0]
    assert (seed.width, seed.height) == (72, 128)


def test_pixels_that_are_not_square_are_drawn_square(tmp_path: Path) -> None:
    # 128x72 with pixels of 3:4 is a picture of 4:3: 480 of 640 columns.
    source = make(tmp_path / "in.mp4", Recorded(seconds=1, aspect=Fraction(3, 4), picture="corner"))
    frame = decode(tmp_path / "out" / cut(source).made[0].clip)[0][0]
    assert frame[90, :72].max() < 40
    assert frame[90, 90:310].min() > 180
    assert frame[90, 330:].max() < 60


def test_interlaced_pictures_are_deinterlaced(tmp_path: Path) -> None:
    options = {"x264-params": "tff=1", "flags": "+ildct+ilme"}
    source = make(tmp_path / "in.ts", Recorded(seconds=2, picture="fields", options=options, size=(128, 96)))
    assert read_recording(source).interlaced
    seed = cut(source, profile=PROFILES["seed"]).made[0]
    frames = [frame.astype(int) for frame in decode(tmp_path / "out" / seed.clip)[0]]
    raw = [frame.astype(int) for frame in decode(source)[0]]
    assert max(_combed(frame) for frame in frames) < 0.35 * min(_combed(frame) for frame in raw[:25])


def _combed(frame: np.ndarray) -> float:
    """How much a line differs from both lines beside it, in the same direction."""
    up, down = frame[1:-1] - frame[:-2], frame[1:-1] - frame[2:]
    return float(np.minimum(np.abs(up), np.abs(down))[up * down > 0].sum())


@pytest.mark.parametrize(("channel", "share"), [(2, 0.5), (0, 0.2), (3, 0.0), (4, 0.05)])
def test_of_surround_sound_dialogue_weighs_most(tmp_path: Path, channel: int, share: float) -> None:
    track = Track(layout="5.1", codec="pcm_s16le", rate=16_000, channel=channel)
    what = Recorded(tracks=(track,), seconds=2)
    found = heard(make(tmp_path / "in.mkv", what), SMALL, [0.0])[0]
    source = wave(what, track)[channel, :16_000]
    assert float(found[0] @ source / (source @ source)) == pytest.approx(share, abs=0.01)


def test_a_sound_track_is_chosen_by_language(tmp_path: Path) -> None:
    tracks = (Track("eng", level=0.0), Track("kor", level=0.5))
    source = make(tmp_path / "in.mkv", Recorded(seconds=2, tracks=tracks))
    silent = cut(source).made[0]
    loud = cut_clips(Cut(source, tmp_path / "kor", every_s=1.0, sound="kor")).made[0]
    by_number = cut_clips(Cut(source, tmp_path / "two", every_s=1.0, sound="2")).made[0]
    assert (silent.silence, loud.silence) == (1.0, 0.0)
    assert by_number.audio_sha256 == loud.audio_sha256
    with pytest.raises(InvalidMedia, match="it has: 1 eng, 2 kor"):
        cut_clips(Cut(source, tmp_path / "jpn", every_s=1.0, sound="jpn"))


def test_a_window_past_the_end_is_cut_as_far_as_the_recording_reaches(tmp_path: Path) -> None:
    what = Recorded(seconds=2.5)
    outcome = cut(make(tmp_path / "in.mp4", what), end_s=600.0)
    assert [clip.problems for clip in outcome.made] == [(), (), ("partial", "sound_gap")]
    assert {(clip.frames, clip.samples) for clip in outcome.made} == {(10, 16_384)}
    shown = numbers(tmp_path / "out" / outcome.made[2].clip)
    assert shown[:5] == expected(what, 2.0)[:5]
    assert set(shown[5:]) == {60}
    with pytest.raises(ConfigError, match="after the end of the recording"):
        cut_clips(Cut(tmp_path / "in.mp4", tmp_path / "late", start_s=60.0))


@pytest.mark.parametrize("name", ["in.mp4", "in.ts", "in.mkv"])
def test_of_a_truncated_recording_what_decodes_is_kept(tmp_path: Path, name: str) -> None:
    what = Recorded(seconds=6, muxer={"movflags": "+faststart"} if name.endswith("4") else {})
    source = make(tmp_path / name, what)
    content = source.read_bytes()
    source.write_bytes(content[: len(content) * 6 // 10])
    outcome = cut(source, end_s=6.0)
    assert 3 <= len(outcome.made) <= 4
    assert numbers(tmp_path / "out" / outcome.made[0].clip) == expected(what, 0.0)
    assert outcome.made[0].problems == ()
    assert "partial" in outcome.made[-1].problems
    assert len(outcome.made) + len(outcome.empty) <= 6


def test_a_recording_without_its_index_is_refused(tmp_path: Path) -> None:
    source = make(tmp_path / "in.mp4", Recorded())
    source.write_bytes(source.read_bytes()[:5000])
    with pytest.raises(InvalidMedia, match="cut off before its index"):
        cut(source)


def test_hdr_is_flagged(tmp_path: Path) -> None:
    tags = {"color_trc": 16, "color_primaries": 9, "colorspace": 9}
    made = cut(make(tmp_path / "in.mp4", Recorded(seconds=1, tags=tags))).made
    assert made[0].problems == ("hdr_unmapped",)


def test_sound_that_cannot_be_decoded_is_refused_with_advice(tmp_path: Path) -> None:
    source = make(tmp_path / "in.mp4", Recorded(seconds=1))
    content = source.read_bytes()
    source.write_bytes(content.replace(b"mp4a", b"mhm1").replace(b"esds", b"mhaC"))
    with pytest.raises(MediaUnsupported, match=r"MPEG-H.*AAC or PCM.*--sound none"):
        cut(source)
    made = cut(source, sound="none").made
    assert (made[0].problems, made[0].silence) == (("no_sound",), 1.0)


def test_a_picture_alone_gets_silence_and_sound_alone_gets_black(tmp_path: Path) -> None:
    dumb = cut(make(tmp_path / "in.mp4", Recorded(seconds=2, tracks=()))).made
    assert [(clip.problems, clip.silence, clip.samples) for clip in dumb] == [
        (("no_sound",), 1.0, 16_384)
    ] * 2
    dark = cut_clips(
        Cut(
            make(tmp_path / "in.wav", Recorded(seconds=2, picture="", tracks=(Track(codec="pcm_s16le"),))),
            tmp_path / "dark",
            every_s=1.0,
        )
    ).made
    assert [(clip.problems, clip.black, clip.frames) for clip in dark] == [(("no_picture",), 1.0, 10)] * 2
    assert dark[0].silence == 0.0


def test_finished_clips_are_kept_and_stale_ones_taken_away(tmp_path: Path) -> None:
    source, out = make(tmp_path / "in.mp4", Recorded()), tmp_path / "out"
    first = cut(source)
    stale = out / ".0002_0001-0002.mp4.part"
    stale.write_bytes(b"half")
    (out / first.made[1].clip).unlink()
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("*.mp4")}
    again = cut(source)
    assert [clip.clip for clip in again.made] == [first.made[1].clip]
    assert again.clips == first.clips
    assert {name: (out / name).stat().st_mtime_ns for name in kept} == kept
    assert not stale.exists()
    assert len((out / MANIFEST).read_text().splitlines()) == 4
    assert len(cut(source, force=True).made) == 4


def test_a_clip_without_a_line_gets_one_again(tmp_path: Path) -> None:
    source = make(tmp_path / "in.mp4", Recorded())
    first = cut(source)
    (tmp_path / "out" / MANIFEST).unlink()
    again = cut(source)
    assert again.made == []
    assert [clip.sha256 for clip in again.kept] == [clip.sha256 for clip in first.made]
    assert [clip.start_s for clip in again.kept] == [0, 1, 2, 3]


def test_clips_of_another_shape_are_not_mixed_in(tmp_path: Path) -> None:
    source = make(tmp_path / "in.mp4", Recorded(seconds=2))
    cut(source)
    with pytest.raises(ConfigError, match="choose another folder, or --force"):
        cut(source, profile=PROFILES["seed"])


def test_two_cuts_of_one_recording_are_the_same_bytes(tmp_path: Path) -> None:
    source = make(tmp_path / "in.mp4", Recorded(seconds=2))
    one = cut(source).made
    two = cut_clips(Cut(source, tmp_path / "again", every_s=1.0)).made
    assert one == two


def test_passing_over_frames_undecoded_changes_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"bf": "3", "preset": "veryfast", "x264-params": "b-adapt=0:scenecut=0"}
    source = make(tmp_path / "in.mp4", Recorded(seconds=3, fps=Fraction(30), gop=40, options=options))
    with av.open(str(source)) as file:
        assert may_skip(file, read_recording(source))
    thrifty = cut(source).made
    monkeypatch.setattr("dabom.media.cutting.may_skip", lambda *_: False)
    assert cut_clips(Cut(source, tmp_path / "all", every_s=1.0)).made == thrifty


def test_where_the_rate_varies_every_frame_is_decoded(tmp_path: Path) -> None:
    times = (*(n / 30 for n in range(60)), *(2 + n / 10 for n in range(10)))
    source = make(tmp_path / "in.mp4", Recorded(fps=Fraction(30), times=times, seconds=3))
    with av.open(str(source)) as file:
        assert not may_skip(file, read_recording(source))
    made = cut(source).made
    for clip in made[:2]:
        assert numbers(tmp_path / "out" / clip.clip) == expected(Recorded(times=times), clip.start_s)


def test_black_still_and_silent_shares(tmp_path: Path) -> None:
    tracks = (Track(level=0.0),)
    still = cut(make(tmp_path / "in.mp4", Recorded(seconds=1, picture="corner", tracks=tracks))).made[0]
    assert (still.black, still.freeze, still.silence) == (0.0, 1.0, 1.0)
    moving = cut_clips(Cut(make(tmp_path / "b.mp4", Recorded(seconds=1)), tmp_path / "b", every_s=1.0)).made[
        0
    ]
    assert moving.freeze < 0.2
    assert moving.silence == 0.0
    assert number_of(decode(tmp_path / "b" / moving.clip)[0][4]) == 10
