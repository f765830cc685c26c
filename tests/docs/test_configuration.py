"""The file that the configuration page shows is accepted, and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dabom.app import load_settings

_PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
_EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("VLLM_BASE_URL", "DABOM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OUR_KEY", "OUR_ADMIN_KEY", "GPU_HOST"):
        monkeypatch.setenv(name, name.lower().replace("_", "-"))
    return tmp_path


@pytest.mark.parametrize("number", range(len(_EXAMPLES)))
def test_the_examples_are_accepted(folder: Path, number: int) -> None:
    text = _EXAMPLES[number].replace("/run/secrets", str(folder)).replace("/models", str(folder))
    (folder / "gpu").write_text("sk-gpu\n")
    for name in re.findall(r"[\w.-]+\.gguf", text):
        (folder / name).touch()
    (folder / "dabom.yaml").write_text(text, encoding="utf-8")
    assert load_settings(folder / "dabom.yaml").gateway().upstreams


def test_the_example_routes_as_its_comments_say(folder: Path) -> None:
    (folder / "dabom.yaml").write_text(_EXAMPLES[0], encoding="utf-8")
    settings = load_settings(folder / "dabom.yaml").gateway()
    assert settings.routing.routes["precise"].steps == (("vl-30b", "vl-30b-b"), ("text",))
    assert settings.routing.routes["vision"].steps == (("vl-30b",), ("vl-30b-b",))
    assert (settings.clocks.total_timeout_s, settings.limits.max_batch_items) == (900, 256)
    clocks = settings.upstreams[0].clocks
    assert clocks is not None
    assert (clocks.first_byte_timeout_s, clocks.total_timeout_s) == (180, 900)
