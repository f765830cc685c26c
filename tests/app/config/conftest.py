"""An empty folder without settings from outside, and a file in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

Write = Callable[[str], Path]


@pytest.fixture(autouse=True)
def folder(plain_environment: Path) -> Path:
    """The folder that the test runs in."""
    return plain_environment


@pytest.fixture
def write(folder: Path) -> Write:
    """`write(text)` makes `dabom.yaml`; a first line break and the indent are dropped."""

    def put(text: str) -> Path:
        file = folder / "dabom.yaml"
        file.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        return file

    return put
