from __future__ import annotations

import pytest

from dabom.families import FAMILIES, Edges, Options, VideoFacts
from dabom.families.sampling import arange, spread, spread_places, stamp_tokens, stamps

_CLIP = VideoFacts(640, 360, 180, 30.0, 96_256, 16_000)
VL, VL25, OMNI = FAMILIES["qwen3-vl"], FAMILIES["qwen2.5-vl"], FAMILIES["qwen3-omni"]


def test_times_are_inside_a_qwen3_vl_clip_and_nowhere_else() -> None:
    cost = VL.video(_CLIP)
    assert (cost.tokens, cost.prompt_tokens) == ({"video": 6 * 220 + 6 * (6 + 2)}, 1370)
    assert OMNI.video(_CLIP).tokens == {"video": 1320}
    assert VL25.video(_CLIP).tokens == {"video": 6 * 299}


def test_a_clip_that_is_heard_shows_one_span_twice() -> None:
    cost = OMNI.video(_CLIP, Options(use_audio_in_video=True))
    assert cost.tokens == {"video": 1320 + 79 + 2, "audio": 1401}
    assert cost.prompt_tokens == 1403


@pytest.mark.parametrize(
    ("frames", "fps", "rate", "taken"),
    # what torch.arange gives; an even number is meant, and sometimes there is one more
    [(75, 10.0, 2.0, 15), (230, 30.0, 2.0, 15), (237, 30000 / 1001, 2.0, 15), (191, 24.0, 4.0, 31)],
)
def test_the_step_of_arange_can_give_one_frame_more(frames: int, fps: float, rate: float, taken: int) -> None:
    assert arange(frames, fps, rate) == taken


@pytest.mark.parametrize(("frames", "taken"), [(1, 0), (2, 2), (3, 2), (5, 4), (180, 12), (179, 10)])
def test_frames_are_taken_in_pairs(frames: int, taken: int) -> None:
    assert arange(frames, 30.0, 2.0) in (taken, taken + (taken > 2))


def test_at_most_768_frames() -> None:
    assert arange(100_000, 30.0, 30.0) == spread(100_000, 30.0, 30.0) == 768


def test_a_clip_of_which_every_frame_is_taken_is_sampled_again() -> None:
    slow = VideoFacts(64, 64, 16, 4.0)
    assert VL.video(slow, Options(fps=4.0)).frames_sampled == 8
    assert VL.video(slow, Options(fps=4.0, processor_fps=4.0)).frames_sampled == 16
    assert OMNI.video(slow, Options(fps=4.0)).frames_sampled == 16


def test_no_more_than_30_frames_a_second_are_taken() -> None:
    fast = VideoFacts(64, 64, 240, 120.0)
    assert VL.video(fast, Options(fps=60.0)).frames_sampled == 60
    assert VL25.video(fast, Options(fps=60.0)) == VL25.video(fast, Options(fps=30.0))


def test_the_last_frame_of_an_odd_number_counts_twice() -> None:
    assert spread_places(10, 5) == [0, 2, 4, 7, 9]
    assert stamps([0, 2, 4, 7, 9], 10.0) == [0.1, 0.55, 0.9]
    cost = VL.video(VideoFacts(640, 360, 179, 30.0))
    assert (cost.frames_sampled, cost.prompt_tokens) == (11, 1370)


@pytest.mark.parametrize(("second", "tokens"), [(0.0, 6), (9.94, 6), (9.96, 7), (99.9, 7), (100.0, 8)])
def test_a_time_has_a_token_for_each_digit(second: float, tokens: int) -> None:
    assert stamp_tokens(second) == tokens


def test_frames_that_do_not_decode_are_left_out() -> None:
    whole, cut = VideoFacts(64, 64, 96, 30.0), VideoFacts(64, 64, 96, 30.0, decodable=75)
    assert (VL.video(whole).frames_sampled, VL.video(cut).frames_sampled) == (6, 4)
    assert (OMNI.video(whole).frames_sampled, OMNI.video(cut).frames_sampled) == (6, 5)


def test_pixels_of_a_clip_are_of_the_whole_clip_or_of_a_frame() -> None:
    asked = Options(video=Edges(max_pixels=262_144))
    assert "262,144 in all" in VL.video(_CLIP, asked).explain[1]
    assert VL.video(_CLIP, asked).prompt_tokens < 400
    assert VL25.video(_CLIP, asked).tokens == VL25.video(_CLIP).tokens


def test_an_omni_clip_has_limits_of_its_own_until_a_request_sets_one() -> None:
    small = VideoFacts(64, 64, 60, 10.0)
    assert OMNI.video(small).tokens == {"video": 6 * 144}
    assert OMNI.video(small, Options(video=Edges(max_pixels=500_000))).tokens == {"video": 6 * 4}


@pytest.mark.parametrize(("name", "status"), [("qwen3-vl", 400), ("qwen2.5-vl", 500), ("qwen3-omni", 500)])
def test_a_clip_of_one_frame_is_refused(name: str, status: int) -> None:
    refusal = FAMILIES[name].video(VideoFacts(64, 64, 1, 10.0)).refusal
    assert refusal is not None
    assert (refusal.code, refusal.status) == ("too_few_frames", status)


def test_a_silent_clip_cannot_be_heard_nor_any_clip_by_a_family_that_is_deaf() -> None:
    asked = Options(use_audio_in_video=True)
    silent = OMNI.video(VideoFacts(64, 64, 60, 10.0), asked)
    assert (silent.tokens, silent.prompt_tokens) == ({}, 0)
    assert "no sound track" in str(silent.error)
    assert "use an Omni model" in str(VL.video(_CLIP, asked).error)


def test_an_estimate_says_so() -> None:
    cost = VL.video(VideoFacts(640, 360, 180, 30.0, estimated=True))
    assert cost.estimated
    assert cost.explain[-1].startswith("an estimate")


def test_one_edge_of_size_is_enough_for_qwen3_vl_and_for_clips_of_omni() -> None:
    one = Edges(None, 1_000_000, flat=False)
    asked = Options(image=one, video=one)
    assert VL.image(4000, 3000, asked).refusal is VL.video(_CLIP, asked).refusal is None
    assert "both edges" in str(OMNI.image(4000, 3000, asked).error)
    assert OMNI.video(_CLIP, asked).refusal is None
    assert "both edges" in str(VL25.video(_CLIP, asked).error)
    assert OMNI.image(4000, 3000, Options(image=Edges(None, 1_000_000))).refusal is None
