"""The limits of a family's checkpoints: those that are shipped, and those of a checkpoint's own files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_PIXELS = 178_956_970
"""Of a picture or a frame: vLLM's VLLM_MAX_IMAGE_PIXELS."""
MAX_SOUND_S = 600
"""Of a sound: vLLM's VLLM_MAX_AUDIO_DECODE_DURATION_S."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Pixels, frames and patches. `image` and `video` are the least and the most pixels.

    `video` is a volume (frames x width x height) for Qwen3-VL and an area per frame elsewhere.
    `video_asked` holds what a missing edge is as soon as a request sets the other one outside a scope.
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

_CLASS_IMAGE = (3_136, 1_003_520)
_CLASS_VIDEO = {False: (100_352, 602_112), True: (131_072, 786_432)}
"""What transformers takes for an edge that a file leaves out; by `whole_clip`."""


def from_files(shipped: Limits, image: Mapping[str, Any], video: Mapping[str, Any] | None) -> Limits:
    """`shipped` with what a checkpoint's preprocessor_config.json and video_preprocessor_config.json say.

    `video` is None when there is no such file: vLLM then takes the clip's limits from `image`. The Omni
    families keep their own for clips until a request sets an edge. An edge that a file leaves out is the
    default of the class in transformers, as it is on the server.
    Raises ValueError when a number is none.
    """
    own = image if video is None else video
    whole_clip = shipped.again is not None
    asked = _edges(own, _CLASS_VIDEO[whole_clip])
    again = shipped.again
    if again is not None:
        fps, least, most = (_number(own, key, old) for key, old in zip(_SAMPLING, again, strict=True))
        again = (fps, int(least), int(most))
    return replace(
        shipped,
        patch=int(_number(image, "patch_size", shipped.patch)),
        merge=int(_number(image, "merge_size", shipped.merge)),
        image=_edges(image, _CLASS_IMAGE),
        video=asked if shipped.video == shipped.video_asked else shipped.video,
        video_asked=asked,
        again=again,
    )


_SAMPLING = ("fps", "min_frames", "max_frames")


def _edges(file: Mapping[str, Any], default: tuple[int, int]) -> tuple[int, int]:
    size = file.get("size")
    named = size if isinstance(size, dict) else {}
    least = _number(file, "min_pixels", _number(named, "shortest_edge", default[0]))
    most = _number(file, "max_pixels", _number(named, "longest_edge", default[1]))
    return int(least), int(most)


def _number(file: Mapping[str, Any], key: str, default: float) -> float:
    value = file.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ValueError(f"{key} is {value!r}; a number above 0 is needed")
    return value
