from __future__ import annotations

from typing import Any

import pytest

from dabom.families import Edges, Options, read_options


@pytest.mark.parametrize(
    ("processor", "loader", "options"),
    [
        (None, None, Options()),
        ({}, {"video": {"fps": 1}}, Options(fps=1)),
        ({"fps": 2.0, "use_audio_in_video": True}, {}, Options(processor_fps=2.0, use_audio_in_video=True)),
        ({"max_pixels": 9_000}, {}, Options(image=Edges(None, 9_000), video=Edges(None, 9_000))),
        (
            {"videos_kwargs": {"size": {"shortest_edge": 1, "longest_edge": 2}}, "min_pixels": 5},
            {},
            Options(image=Edges(5, None), video=Edges(1, 2, flat=False, scoped=True)),
        ),
        (
            {"size": {"longest_edge": 7}},
            {},
            Options(image=Edges(None, 7, flat=False), video=Edges(None, 7, flat=False)),
        ),
    ],
)
def test_what_a_request_asks_for(processor: Any, loader: Any, options: Options) -> None:
    assert read_options(processor, loader) == options


@pytest.mark.parametrize(
    ("processor", "loader"),
    [
        ("no object", ["none"]),
        ({"max_pixels": "many", "size": 448, "images_kwargs": 1}, {"video": {"fps": True}}),
        ({"max_pixels": -1, "use_audio_in_video": "yes"}, {"video": {"fps": 0}}),
    ],
)
def test_nonsense_is_left_to_the_server(processor: Any, loader: Any) -> None:
    assert read_options(processor, loader) == Options()
