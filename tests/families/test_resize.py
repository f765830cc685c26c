from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dabom.families import FAMILIES, find, patch14_tokens

_SIZES = {
    (224, 224): (64, 64, 49),
    (448, 448): (256, 196, 196),
    (640, 360): (299, 220, 220),
    (1280, 720): (1196, 880, 880),
    (1920, 1080): (2691, 2040, 2040),
    (1344, 1344): (2304, 1764, 1764),
    (3840, 2160): (10549, 8160, 8160),
    (4032, 3024): (15552, 11844, 11844),
    (4096, 4096): (16384, 16384, 12544),
}
_THREE = ("qwen2.5-vl", "qwen3-vl", "qwen3-omni")
_SIDES = st.integers(1, 9000)


@pytest.mark.parametrize("size", _SIZES)
def test_a_picture_costs_its_squares_and_two_markers(size: tuple[int, int]) -> None:
    costs = [FAMILIES[name].image(*size) for name in _THREE]
    assert tuple(cost.tokens["image"] for cost in costs) == _SIZES[size]
    assert [cost.prompt_tokens - cost.tokens["image"] for cost in costs] == [2, 2, 2]


@given(_SIDES, _SIDES, st.sampled_from(sorted(FAMILIES)))
def test_a_turned_picture_costs_the_same(width: int, height: int, name: str) -> None:
    one, other = FAMILIES[name].image(width, height), FAMILIES[name].image(height, width)
    assert (one.tokens, one.error) == (other.tokens, other.error)


@given(_SIDES, _SIDES, st.sampled_from(sorted(FAMILIES)))
def test_the_scaled_picture_is_a_grid_within_the_limits(width: int, height: int, name: str) -> None:
    family = FAMILIES[name]
    cost = family.image(width, height)
    if cost.refusal is not None:
        assert max(width, height) > 200 * min(width, height)
        return
    size = family.picture_size(width, height)
    assert size.width % family.factor == size.height % family.factor == 0
    assert 0 < size.width * size.height <= family.limits.image[1]


def test_a_strip_may_end_smaller_than_it_was() -> None:
    # The rounded height is 0, so the strip counts as too small and is "enlarged" by less than one.
    assert FAMILIES["qwen3-omni"].image(2000, 15).tokens == {"image": 21}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_ratio_200_is_fine_and_more_is_refused(name: str) -> None:
    assert FAMILIES[name].image(2000, 10).refusal is None
    refused = FAMILIES[name].image(2001, 10)
    assert refused.refusal is not None
    assert (refused.refusal.code, refused.refusal.status, refused.tokens) == ("too_long", 400, {})
    assert "200.1 times" in str(refused.error)


def test_more_pixels_than_the_server_takes_are_refused() -> None:
    refused = FAMILIES["qwen3-vl"].image(13_378, 13_378)
    assert "178,970,884 pixels" in str(refused.error)


def test_the_articles_formula_is_right_for_patch_14_and_a_third_too_high_for_patch_16() -> None:
    for size, (patch14, _, patch16) in _SIZES.items():
        area = size[0] * size[1]
        if area <= 12_000_000:
            assert patch14_tokens(*size) == patch14, size
        assert patch14_tokens(*size) > patch16, size
    assert patch14_tokens(4096, 4096) > FAMILIES["qwen2.5-vl"].image(4096, 4096).tokens["image"]
    exact = FAMILIES["qwen3-vl"].image(1344, 1344).tokens["image"]
    assert patch14_tokens(1344, 1344) / exact == pytest.approx(1.306, abs=0.001)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("qwen3-vl", "qwen3-vl"),
        ("Qwen/Qwen3-VL-8B-Instruct", "qwen3-vl"),
        ("/models/Qwen3-VL-30B-A3B-Thinking-FP8", "qwen3-vl"),
        ("qwen2_5_vl", "qwen2.5-vl"),
        ("Qwen/Qwen2.5-VL-7B-Instruct-AWQ", "qwen2.5-vl"),
        ("Qwen2-VL-72B", "qwen2-vl"),
        ("Qwen/Qwen3-Omni-30B-A3B-Instruct", "qwen3-omni"),
        ("Qwen2.5-Omni-7B", "qwen2.5-omni"),
    ],
)
def test_a_family_is_found_by_the_name_of_a_model(name: str, family: str) -> None:
    found = find(name)
    assert found is not None
    assert found.name == family


@pytest.mark.parametrize("name", ["", "llama-3", "Qwen3-14B", "qwen"])
def test_an_unknown_model_has_no_family(name: str) -> None:
    assert find(name) is None
