"""Upstreams that the gateway itself serves, as far as the settings go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dabom.app import load_settings, read_settings
from dabom.app.config import load
from dabom.app.local import complete, find_children

if TYPE_CHECKING:
    from pathlib import Path

    from tests.app.config.conftest import Write

_TEXT = """
upstreams:
  - kind: llama_cpp
    gguf: vl.gguf
    mmproj: mm.gguf
    concurrency: 3
    max_model_len: 4000
  - kind: llama_cpp
    name: plain
    gguf: text.gguf
concurrency: 2
"""


@pytest.fixture
def file(folder: Path, write: Write) -> Path:
    for name in ("vl", "mm", "text"):
        (folder / f"{name}.gguf").touch()
    return write(_TEXT)


def test_each_gguf_is_a_child_and_an_upstream(file: Path) -> None:
    settings = load_settings(file)
    children = find_children(settings)
    assert [child.arguments for child in children] == [
        (
            *("--with-parent", "--model", "vl.gguf", "--alias", "vl", "--slots", "3"),
            *("--context", "4000", "--mmproj", "mm.gguf"),
        ),
        ("--with-parent", "--model", "text.gguf", "--alias", "plain", "--slots", "2", "--context", "8192"),
    ]
    urls = {child: f"http://127.0.0.1:{number}/v1" for number, child in enumerate(children, 1)}
    first, second = complete(settings, urls).upstreams
    assert (first.name, first.url, first.model) == ("vl", "http://127.0.0.1:1/v1", "vl")
    assert (first.max_model_len, first.modalities) == (4000, None)
    assert (second.name, second.url, second.model) == ("plain", "http://127.0.0.1:2/v1", "plain")
    assert (second.max_model_len, second.modalities) == (8192, frozenset())


def test_a_file_that_is_not_there_is_told_with_its_line(file: Path, folder: Path) -> None:
    (folder / "mm.gguf").unlink()
    (folder / "text.gguf").unlink()
    assert [str(flaw) for flaw in read_settings(file).flaws] == [
        f"{file}, line 4: mmproj mm.gguf is no file",
        f"{file}, line 9: gguf text.gguf is no file",
    ]


def test_a_missing_wheel_is_told_with_what_to_install(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "find_spec", lambda _: None)
    first, _ = read_settings(file).flaws
    assert str(first).startswith(f"{file}, line 3: a gguf is served by the wheel xllamacpp")
    assert "install dabom[llama-cpp]" in str(first)
