from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from dabom.app import load_settings
from dabom.gateway import KeySettings
from dabom.gateway.masking.answer import SHIPPED

ROOT = Path(__file__).parents[2]


def test_generated_pages_are_current() -> None:
    command = [sys.executable, "script/gen_docs.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_example_of_the_settings_page_is_accepted(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    example = re.search(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert example
    (tmp_path / "dabom.yaml").write_text(example[1], encoding="utf-8")
    settings = load_settings(tmp_path / "dabom.yaml")
    assert [(one.name, one.concurrency) for one in settings.upstreams] == [("omni", 8), ("text", None)]
    assert (settings.max_batch_items, settings.total_timeout_s) == (256, 900)


def test_the_page_on_keys_has_all_their_settings_and_its_example_is_accepted(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
    assert [name for name in KeySettings.model_fields if name != "hash" and f"| `{name}` |" not in page] == []
    example = re.search(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert example
    (tmp_path / "dabom.yaml").write_text(example[1], encoding="utf-8")
    settings = load_settings(tmp_path / "dabom.yaml")
    assert [(key.id, key.priority) for key in settings.keys] == [("anna", None), ("nightly", "batch")]


def test_the_page_on_masking_names_every_detector() -> None:
    page = (ROOT / "docs" / "masking.md").read_text(encoding="utf-8")
    assert [name for name in SHIPPED if f"| `{name}` |" not in page] == []
