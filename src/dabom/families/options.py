"""What a request says about its media, read from vLLM's two objects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dabom.families.facts import Edges, Options

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_options(processor: Mapping[str, Any] | None, loader: Mapping[str, Any] | None) -> Options:
    """The options in `mm_processor_kwargs` and `media_io_kwargs`; what is of the wrong type is left out.

    `min_pixels`, `max_pixels` and `size` hold for pictures and clips; `images_kwargs` and `videos_kwargs`
    hold for one of them and come first. The server has the last word on values that make no sense.
    """
    kwargs = processor if isinstance(processor, dict) else {}
    video = loader.get("video") if isinstance(loader, dict) else None
    fps = _number(video.get("fps")) if isinstance(video, dict) else None
    return Options(
        fps=fps,
        processor_fps=_number(_inner(kwargs, "videos_kwargs").get("fps")) or _number(kwargs.get("fps")),
        image=_scoped(kwargs, "images_kwargs"),
        video=_scoped(kwargs, "videos_kwargs"),
        use_audio_in_video=kwargs.get("use_audio_in_video") is True,
    )


def _scoped(kwargs: Mapping[str, Any], scope: str) -> Edges:
    own = _edges(_inner(kwargs, scope))
    return replace(own, scoped=True) if own.given else _edges(kwargs)


def _inner(kwargs: Mapping[str, Any], scope: str) -> Mapping[str, Any]:
    inner = kwargs.get(scope)
    return inner if isinstance(inner, dict) else {}


def _edges(kwargs: Mapping[str, Any]) -> Edges:
    size = kwargs.get("size")
    if isinstance(size, dict):
        edges = Edges(_pixels(size.get("shortest_edge")), _pixels(size.get("longest_edge")), flat=False)
        if edges.given:
            return edges
    return Edges(_pixels(kwargs.get("min_pixels")), _pixels(kwargs.get("max_pixels")))


def _pixels(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None
