from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageFilter

from dabom.reader.light import measure_light


def half(left: str, right: str) -> Image.Image:
    image = Image.new("RGB", (200, 100), left)
    image.paste(right, (100, 0, 200, 100))
    return image


@pytest.mark.parametrize(
    ("colour", "name"),
    [
        ("#e02020", "red"),
        ("#ff8800", "orange"),
        ("#ffe000", "yellow"),
        ("#20a020", "green"),
        ("#00b0b0", "cyan"),
        ("#2040e0", "blue"),
        ("#8020c0", "purple"),
        ("#ff60b0", "pink"),
        ("#7a4a20", "brown"),
        ("#808080", "grey"),
        ("#ffffff", "white"),
        ("#050505", "black"),
    ],
)
def test_colours_have_names(colour: str, name: str) -> None:
    assert measure_light(half(colour, colour)).colours == [(name, 1.0)]


def test_shares_are_of_the_picture() -> None:
    assert measure_light(half("#ff0000", "#0000ff")).colours == [("blue", 0.5), ("red", 0.5)]


def test_black_and_blank() -> None:
    black = measure_light(Image.new("RGB", (64, 64), (3, 3, 3)))
    assert black.black
    assert black.blank
    white = measure_light(Image.new("RGB", (64, 64), "white"))
    assert white.blank
    assert not white.black
    assert white.brightness == pytest.approx(1.0)


def test_a_dark_scene_with_a_light_is_not_black() -> None:
    night = Image.new("RGB", (640, 360), (4, 4, 8))
    night.paste((255, 240, 200), (300, 100, 330, 120))
    light = measure_light(night)
    assert not light.black
    assert not light.blank


def test_blur_lowers_sharpness() -> None:
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 255, (200, 200, 3), dtype=np.uint8))
    assert (
        measure_light(noise).sharpness
        > 10 * measure_light(noise.filter(ImageFilter.GaussianBlur(4))).sharpness
    )


def test_one_pixel_is_measured() -> None:
    assert measure_light(Image.new("RGB", (1, 1), "red")).colours == [("red", 1.0)]
