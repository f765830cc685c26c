"""The READMEs promise what exists: their commands are run, and both say the same."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGLISH, KOREAN = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.ko.md"))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def blocks(page: str) -> list[str]:
    return re.findall(r"^(?:<!-- run -->\n)?```.*?^```$", page, re.MULTILINE | re.DOTALL)


def sections(page: str) -> list[int]:
    """The level of each heading, in order."""
    outside = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    return [len(marks) for marks in re.findall(r"^(#+) ", outside, re.MULTILINE)]


def tables(page: str) -> list[int]:
    """The number of rows of each table, in order."""
    return [len(rows.splitlines()) for rows in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)]


@pytest.mark.timeout(300)
def test_transcripts_are_what_the_commands_print() -> None:
    command = [sys.executable, "script/transcripts.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_both_languages_have_the_same_parts() -> None:
    assert sections(ENGLISH) == sections(KOREAN)
    assert blocks(ENGLISH) == blocks(KOREAN)
    assert tables(ENGLISH) == tables(KOREAN)
    assert LINK.findall(ENGLISH.replace(".ko.", ".")) == LINK.findall(KOREAN.replace(".ko.", "."))


def test_every_make_target_of_the_readme_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)\b(?=`| +#|$)", ENGLISH, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
