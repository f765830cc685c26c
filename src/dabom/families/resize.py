"""The size that a picture or a clip has when the model sees it.

All sides are pixels. A factor is patch x merge: one token stands for a square of that side. The arithmetic
is symmetric in width and height, so a turn by EXIF or by a clip's matrix never changes a count.
"""

from __future__ import annotations

import math
from typing import NamedTuple

MAX_RATIO = 200
"""Long by short side; 200 is fine, more is refused."""
_TEMPORAL = 2


class Size(NamedTuple):
    """Pixels."""

    width: int
    height: int


def too_long(width: int, height: int) -> bool:
    """The long side is more than 200 times the short one: the server refuses it."""
    return max(width, height) > MAX_RATIO * min(width, height)


def picture_size(width: int, height: int, factor: int, least: int, most: int) -> Size:
    """A picture, or one frame of a family that sizes frame by frame. `least` and `most` are areas.

    Each side goes to the nearest multiple of `factor`, halves to the even one (so a side below factor/2
    becomes 0); when the area is outside the limits the ratio is kept and both sides are rounded inwards.
    Enlarging looks at the rounded area: a thin strip may end smaller than it was.
    Source: transformers `models/qwen2_vl/image_processing_qwen2_vl.py`, smart_resize.
    """
    wide, high = round(width / factor) * factor, round(height / factor) * factor
    if wide * high > most:
        shrink = math.sqrt((height * width) / most)
        wide = max(factor, math.floor(width / shrink / factor) * factor)
        high = max(factor, math.floor(height / shrink / factor) * factor)
    elif wide * high < least:
        grow = math.sqrt(least / (height * width))
        wide = math.ceil(width * grow / factor) * factor
        high = math.ceil(height * grow / factor) * factor
    return Size(wide, high)


def clip_size(frames: int, size: tuple[int, int], factor: int, least: int, most: int) -> Size:
    """The frames of a Qwen3-VL clip; `least` and `most` are volumes, frames x width x height.

    A side below `factor` is first enlarged to it, with the ratio kept. The rounded volume counts frames in
    pairs, halves to the even pair.
    Source: transformers `models/qwen3_vl/video_processing_qwen3_vl.py`, smart_resize.
    """
    width, height = size
    if height < factor or width < factor:
        scale = max(factor / height, factor / width)
        height, width = int(height * scale), int(width * scale)
    wide, high = round(width / factor) * factor, round(height / factor) * factor
    deep = round(frames / _TEMPORAL) * _TEMPORAL
    if deep * wide * high > most:
        shrink = math.sqrt((frames * height * width) / most)
        wide = max(factor, math.floor(width / shrink / factor) * factor)
        high = max(factor, math.floor(height / shrink / factor) * factor)
    elif deep * wide * high < least:
        grow = math.sqrt(least / (frames * height * width))
        wide = math.ceil(width * grow / factor) * factor
        high = math.ceil(height * grow / factor) * factor
    return Size(wide, high)


def patch14_tokens(width: int, height: int) -> int:
    """The formula of the articles that Dabom grew from: sides to the nearest 28, (w/14)(h/14)/4.

    It is right for families with patch 14 (Qwen2-VL, Qwen2.5-VL) while the area is within the limits, which
    it knows nothing of. Qwen3-VL and Qwen3-Omni have patch 16: for 1344 x 1344 it says 2,304 where they use
    1,764, 30.6 % too many. No prediction of Dabom uses it; it is kept for comparison.
    """
    wide, high = round(width / 28) * 28, round(height / 28) * 28
    return (wide // 14) * (high // 14) // 4
