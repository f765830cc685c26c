"""Brightness, colours, sharpness, black and blank pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from dabom.reader.findings import Light

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_SIDE_PX = 160
_SHARP_SIDE_PX = 640
# Name and the hue, in degrees, up to which it holds.
_HUES = (
    (15, "red"),
    (40, "orange"),
    (68, "yellow"),
    (165, "green"),
    (195, "cyan"),
    (255, "blue"),
    (290, "purple"),
)
_HUE_NAMES = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink")
_MIN_SHARE = 0.05
# Video codes black as 16; a dark but real scene has brighter places than this.
_BLACK_PEAK = 40
_BLACK_MEAN = 20
_BLANK_RANGE = 8


def measure_light(image: Image.Image) -> Light:
    """The light of one RGB picture."""
    small = image.copy()
    small.thumbnail((_SIDE_PX, _SIDE_PX), Image.Resampling.BOX)
    gray = image.convert("L")
    levels = np.asarray(gray)
    colours = name_colours(small)
    return Light(
        brightness=float(levels.mean()) / 255,
        contrast=float(levels.std()) / 127.5,
        sharpness=_sharpness(gray),
        colours=colours,
        black=bool(levels.mean() < _BLACK_MEAN and np.percentile(levels, 99.9) < _BLACK_PEAK),
        blank=_spread(image) <= _BLANK_RANGE,
    )


def _spread(image: Image.Image) -> int:
    pixels = np.asarray(image).reshape(-1, 3)
    return int((pixels.max(0).astype(int) - pixels.min(0)).max())


def average_light(lights: Sequence[Light]) -> Light:
    """The mean over several pictures; black or blank only when all are."""
    shares: dict[str, float] = {}
    for light in lights:
        for name, share in light.colours:
            shares[name] = shares.get(name, 0.0) + share / len(lights)
    return Light(
        brightness=sum(light.brightness for light in lights) / len(lights),
        contrast=sum(light.contrast for light in lights) / len(lights),
        sharpness=sum(light.sharpness for light in lights) / len(lights),
        colours=_leading(shares),
        black=all(light.black for light in lights),
        blank=all(light.blank for light in lights),
    )


def name_colours(image: Image.Image) -> list[tuple[str, float]]:
    """Up to four colour names with their share of the picture, the largest first."""
    hsv = np.asarray(image.convert("HSV"), np.float32).reshape(-1, 3)
    hue, saturation, value = hsv[:, 0] * 360 / 255, hsv[:, 1] / 255, hsv[:, 2] / 255
    bounds = np.asarray([bound for bound, _ in _HUES])
    index = np.searchsorted(bounds, hue, side="right")
    index[hue >= 340] = 0
    names: NDArray[np.object_] = np.asarray(_HUE_NAMES, object)[index]
    names[(names == "orange") & (value < 0.62)] = "brown"
    names[saturation < 0.16] = "grey"
    names[(saturation < 0.16) & (value > 0.86)] = "white"
    names[value < 0.14] = "black"
    found, counts = np.unique(names.astype(str), return_counts=True)
    return _leading({str(name): float(count) / len(names) for name, count in zip(found, counts, strict=True)})


def _leading(shares: dict[str, float]) -> list[tuple[str, float]]:
    ranked = sorted(shares.items(), key=lambda pair: (-pair[1], pair[0]))
    return [(name, round(share, 3)) for name, share in ranked if share >= _MIN_SHARE][:4]


def _sharpness(gray: Image.Image) -> float:
    if max(gray.size) > _SHARP_SIDE_PX:
        gray = gray.copy()
        gray.thumbnail((_SHARP_SIDE_PX, _SHARP_SIDE_PX), Image.Resampling.BOX)
    levels = np.asarray(gray, np.float32)
    if min(levels.shape) < 3:
        return 0.0
    middle = levels[1:-1, 1:-1]
    laplace = levels[:-2, 1:-1] + levels[2:, 1:-1] + levels[1:-1, :-2] + levels[1:-1, 2:] - 4 * middle
    return float(laplace.var())
