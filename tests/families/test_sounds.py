from __future__ import annotations

import pytest

from dabom.families import FAMILIES
from dabom.families.sound import at_16khz

OMNI, OMNI25 = FAMILIES["qwen3-omni"], FAMILIES["qwen2.5-omni"]


@pytest.mark.parametrize(
    ("samples", "tokens"),
    [(161, 1), (1_600, 2), (16_000, 13), (96_000, 78), (96_256, 79), (160_000, 130), (480_000, 390)],
)
def test_a_second_is_13_tokens(samples: int, tokens: int) -> None:
    cost = OMNI.audio(samples, 16_000)
    assert (cost.tokens, cost.prompt_tokens) == ({"audio": tokens}, tokens + 2)


def test_an_older_omni_has_25_a_second_and_stops_after_five_minutes() -> None:
    assert OMNI25.audio(160_000, 16_000).tokens == {"audio": 250}
    assert OMNI25.audio(320, 16_000).refusal is not None
    assert OMNI25.audio(400 * 16_000, 16_000).tokens == OMNI25.audio(300 * 16_000, 16_000).tokens


@pytest.mark.parametrize("samples", [0, 1, 160])
def test_a_sound_of_one_window_is_refused(samples: int) -> None:
    assert "161 are needed" in str(OMNI.audio(samples, 16_000).error)


def test_ten_minutes_are_the_most() -> None:
    assert OMNI.audio(600 * 8_000, 8_000).refusal is None
    assert "600.1 s" in str(OMNI.audio(600 * 8_000 + 1_000, 8_000).error)


def test_resampling_rounds_up_from_a_length_in_single_precision() -> None:
    assert at_16khz(44_100, 44_100) == 16_000
    assert at_16khz(44_101, 44_100) == 16_001
    assert at_16khz(220_828, 44_100) == 80_119  # exactly 80,119.002, which single precision does not tell
