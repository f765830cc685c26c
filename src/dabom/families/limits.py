"""The limits of a family's checkpoints: those that are shipped, and those of a checkpoint's own files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Limits:
    """Pixels, frames and patches. `image` and `video` are the least and the most pixels.

    `video` is a volume (frames x width x height) for Qwen3-VL and an area per frame elsewhere.
    `video_asked` holds what a missing edge is as soon as a request sets the other one.
    `again` is fps, least and most frames of Qwen3-VL's second sampling.
    """

    patch: int
    merge: int
    image: tuple[int, int]
    video: tuple[int, int]
    video_asked: tuple[int, int]
    again: tuple[float, int, int] | None = None

    @property
    def factor(self) -> int:
        """The side of the square of pixels that one token stands for."""
        return self.patch * self.merge


_QWEN2_IMAGE = (3_136, 12_845_056)

QWEN2_VL = Limits(14, 2, _QWEN2_IMAGE, _QWEN2_IMAGE, _QWEN2_IMAGE)
"""Qwen2-VL and Qwen2.5-VL ship no video_preprocessor_config.json: the picture limits hold per frame too."""

QWEN25_OMNI = Limits(14, 2, _QWEN2_IMAGE, (100_352, 602_112), _QWEN2_IMAGE)
QWEN3_OMNI = Limits(16, 2, _QWEN2_IMAGE, (131_072, 786_432), _QWEN2_IMAGE)
"""Per frame 128 to 768 squares of the factor, whatever the files say, until a request sets an edge."""

_QWEN3_VIDEO = (4_096, 25_165_824)
QWEN3_VL = Limits(16, 2, (65_536, 16_777_216), _QWEN3_VIDEO, _QWEN3_VIDEO, (2.0, 4, 768))


def from_files(
    shipped: Limits, image: Mapping[str, Any], video: Mapping[str, Any] | None, *, fixed_video: bool
) -> Limits:
    """`shipped` with what a checkpoint's preprocessor_config.json and video_preprocessor_config.json say.

    `video` is None when there is no such file: vLLM then takes the clip's limits from `image`. `fixed_video`
    is the Omni families' rule: the clip's limits hold until a request sets an edge.
    """
    own = image if video is None else video
    asked = _edges(own, shipped.video_asked)
    again = shipped.again
    if again is not None:
        again = (
            float(own.get("fps") or again[0]),
            int(own.get("min_frames") or again[1]),
            int(own.get("max_frames") or again[2]),
        )
    return replace(
        shipped,
        patch=int(image.get("patch_size") or shipped.patch),
        merge=int(image.get("merge_size") or shipped.merge),
        image=_edges(image, shipped.image),
        video=shipped.video if fixed_video else asked,
        video_asked=asked,
        again=again,
    )


def _edges(file: Mapping[str, Any], shipped: tuple[int, int]) -> tuple[int, int]:
    size = file.get("size") or {}
    least = file.get("min_pixels") or size.get("shortest_edge") or size.get("min_pixels") or shipped[0]
    most = file.get("max_pixels") or size.get("longest_edge") or size.get("max_pixels") or shipped[1]
    return int(least), int(most)
