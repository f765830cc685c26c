"""The example on the page about routing is a configuration that does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dabom.app import load_settings
from dabom.gateway.health import HealthSettings
from dabom.gateway.routing import AUTO, Need, choose_route, configured_targets
from dabom.gateway.routing.settings import Modality, RoutingSettings

PAGE = Path(__file__).parents[2] / "docs" / "routing.md"


@pytest.mark.parametrize(
    ("model", "modalities", "thinking", "steps"),
    [
        ("auto", (), False, (("mac",), ("text",))),
        ("auto", (), True, (("text",),)),
        ("auto-precise", (), False, (("text",),)),
        ("auto", ("image",), False, (("vl30",), ("vl8",))),
        ("auto-fast", ("image",), False, (("vl8",),)),
        ("agent", (), False, (("vl30",), ("vl8",))),
        ("office", (), False, (("mac",), ("text",))),
        ("office", ("video",), False, (("vl30",), ("vl8",))),
        ("qwen3-vl-8b", ("image",), False, (("vl8",),)),
    ],
)
def test_the_example(
    model: str,
    modalities: tuple[Modality, ...],
    thinking: bool,
    steps: tuple[tuple[str, ...], ...],
    tmp_path: Path,
) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "dabom.yaml"
    file.write_text(example, encoding="utf-8")
    settings = load_settings(file).gateway()
    need = Need(model, frozenset(modalities), thinking=thinking)
    assert choose_route(need, settings.routing, configured_targets(settings.upstreams)).steps == steps


def test_the_page_names_the_settings_with_their_values() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for kind in (RoutingSettings, HealthSettings):
        for name, field in kind.model_fields.items():
            assert name in page, name
            if isinstance(field.default, int | float):
                shown = f"{field.default:,}"
                assert re.search(rf"`{name}`? ?[:(]? ?\(?{shown}\b|`{name}: {shown}`", page), name
    assert all(f"`{name}`" in page for name in AUTO)
