from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")


def requirements() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = {
        "The product": project["project"]["dependencies"],
        "On request": chain(*project["project"]["optional-dependencies"].values()),
        "Build, tests and checks": chain(*project["dependency-groups"].values()),
    }
    return {
        title: sorted(re.split(r"[\[<>=~!; ]", line)[0] for line in lines) for title, lines in groups.items()
    }


def rows(title: str) -> list[list[str]]:
    section = re.search(rf"^## {title}.*?$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section, f"docs/dependencies.md has no section {title}"
    lines = [line for line in section[1].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_every_dependency_has_a_line_and_no_line_is_stale() -> None:
    named = {title: sorted(row[0] for row in rows(title)) for title in requirements()}
    assert named == requirements()


def test_every_line_says_what_for_and_the_licence() -> None:
    lines = [row for title in requirements() for row in rows(title)]
    assert [row for row in lines if len(row) != 4 or not row[1] or not row[2]] == []


def test_lock_files_hold_every_dependency_with_hashes() -> None:
    runtime, dev = (
        (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8") for name in ("runtime", "dev")
    )
    wanted = requirements()
    for name in wanted["The product"]:
        assert re.search(rf"^{name}==\S+ .*\\\n +--hash=sha256:", runtime, re.MULTILINE | re.IGNORECASE), name
    for name in [*wanted["The product"], *wanted["Build, tests and checks"]]:
        assert re.search(rf"^{name}==\S+ .*\\\n +--hash=sha256:", dev, re.MULTILINE | re.IGNORECASE), name


def test_lock_files_agree() -> None:
    pins = [
        dict(
            re.findall(
                r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / name).read_text(encoding="utf-8"), re.MULTILINE
            )
        )
        for name in ("runtime.lock", "dev.lock")
    ]
    assert {name: pins[1].get(name) for name in pins[0]} == pins[0]
