"""The fleet that ships as an example does what its table says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dabom.app import load_settings, read_settings
from dabom.gateway.routing import Need, choose_route, configured_targets

if TYPE_CHECKING:
    from dabom.gateway.routing.settings import Modality

_FILE = Path(__file__).parents[3] / "deploy" / "examples" / "seed-fleet.yaml"
_MLX, _TEXT, _LARGE, _SMALL = "qwen3-14b-mlx", "qwen3-30b", "qwen3-vl-30b", "qwen3-vl-8b"
_PICTURE: frozenset[Modality] = frozenset({"image"})
# what a request names, what it holds, whether it thinks: where it goes, and where when that fails
_TABLE: dict[str, tuple[str, frozenset[Modality], bool, tuple[str, ...]]] = {
    "text, usual": ("auto", frozenset(), False, (_MLX, _TEXT)),
    "text, complex": ("auto-precise", frozenset(), False, (_TEXT,)),
    "text, thinking by name": ("auto-thinking", frozenset(), False, (_TEXT,)),
    "text, thinking by option": ("auto", frozenset(), True, (_TEXT,)),
    "picture, precise": ("auto-precise", _PICTURE, False, (_LARGE, _SMALL)),
    "picture, usual": ("auto", _PICTURE, False, (_LARGE, _SMALL)),
    "picture, thinking": ("auto", _PICTURE, True, (_LARGE, _SMALL)),
    "picture, real time": ("auto-fast", _PICTURE, False, (_SMALL,)),
    "visual agent": ("agent", _PICTURE, False, (_LARGE, _SMALL)),
    "visual coding": ("coding", _PICTURE, False, (_LARGE,)),
    "the chain of the article": ("vision-auto", _PICTURE, False, (_LARGE, _SMALL)),
    "a text model and a picture": (_TEXT, _PICTURE, False, (_LARGE, _SMALL)),
    "a named model": (_SMALL, _PICTURE, False, (_SMALL,)),
}


@pytest.mark.parametrize("row", _TABLE)
def test_each_row_of_the_table_goes_where_it_says(plain_environment: Path, row: str) -> None:
    model, modalities, thinking, targets = _TABLE[row]
    settings = load_settings(_FILE).gateway()
    need = Need(model=model, modalities=modalities, thinking=thinking)
    decision = choose_route(need, settings.routing, configured_targets(settings.upstreams))
    assert decision.steps == tuple((target,) for target in targets)


def test_the_file_has_nothing_to_warn_of(plain_environment: Path) -> None:
    reading = read_settings(_FILE)
    assert (reading.flaws, reading.warnings) == ((), ())


def test_it_has_the_servers_of_the_article(plain_environment: Path) -> None:
    upstreams = load_settings(_FILE).gateway().upstreams
    assert {one.name: (one.url, one.max_pixels) for one in upstreams} == {
        _TEXT: ("http://cuda-node:8100/v1", None),
        _MLX: ("http://mac-studio:8000/v1", None),
        _LARGE: ("http://cuda-node:8200/v1", 1344 * 1344),
        _SMALL: ("http://cuda-node:8201/v1", 896 * 896),
    }


def test_it_has_the_limits_of_the_article(plain_environment: Path) -> None:
    settings = load_settings(_FILE).gateway()
    assert (settings.media.max_images, settings.limits.max_body_bytes) == (4, 50 * 2**20)
    assert [one.concurrency for one in settings.upstreams] == [1, 16, 8, 16]
