"""`script/setup.sh` on machines that lack something, with a stub interpreter: nothing is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ("bash", "cat", "cut", "dirname", "env", "grep", "mkdir", "cp", "rm", "sha256sum")
STUB_PYTHON = """#!/usr/bin/env bash
echo "$*" >> "$STUB_LOG"
case "$*" in
  "-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  -V | --version) echo "Python 3.11.0" ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder with the files that setup reads and a PATH without browser, fonts, curl, sudo and apt-get."""
    for name in ("script/setup.sh", "requirements/dev.lock", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found, f"this test needs {name}"
        (tools / name).symlink_to(found)
    add_tool(tmp_path, "python3", STUB_PYTHON)
    add_tool(tmp_path, "id", "#!/usr/bin/env bash\necho 1000\n")
    return tmp_path


def add_tool(machine: Path, name: str, text: str) -> None:
    path = machine / "bin" / name
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def set_up(machine: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(machine / "bin"), "STUB_LOG": str(machine / "log"), **environment}
    command = ["bash", "script/setup.sh"]
    return subprocess.run(command, cwd=machine, env=environment, capture_output=True, text=True, check=False)


def calls(machine: Path) -> list[str]:
    return (machine / "log").read_text(encoding="utf-8").splitlines()


def test_what_may_not_be_installed_is_named_and_nothing_fails(machine: Path) -> None:
    add_tool(machine, "apt-get", "#!/usr/bin/env bash\necho apt-get >> $STUB_LOG\n")
    done = set_up(machine)
    assert (done.returncode, done.stderr) == (0, "")
    reason = r"\(neither root nor sudo without a password\)"
    for package in ("chromium", "fonts-nanum"):
        assert re.search(
            rf"^setup: {package}: NOT installed {reason}; needed for: .+$", done.stdout, re.MULTILINE
        )
    assert "apt-get" not in calls(machine)


def test_system_packages_are_left_alone_when_told_so(machine: Path) -> None:
    add_tool(machine, "id", "#!/usr/bin/env bash\necho 0\n")
    add_tool(machine, "apt-get", "#!/usr/bin/env bash\necho apt-get >> $STUB_LOG\n")
    done = set_up(machine, DABOM_SYSTEM_PACKAGES="no")
    assert (done.returncode, "apt-get" in calls(machine)) == (0, False)
    assert "chromium: NOT installed (DABOM_SYSTEM_PACKAGES=no)" in done.stdout


def test_an_apt_get_that_fails_is_not_tried_twice(machine: Path) -> None:
    add_tool(machine, "id", "#!/usr/bin/env bash\necho 0\n")
    add_tool(machine, "apt-get", "#!/usr/bin/env bash\necho apt-get >> $STUB_LOG\nexit 100\n")
    first = set_up(machine)
    tries = calls(machine).count("apt-get")
    second = set_up(machine)
    assert (first.returncode, second.returncode) == (0, 0)
    assert "chromium: NOT installed (apt-get could not install it)" in first.stdout
    assert "chromium: NOT installed (apt-get could not install it before; rm " in second.stdout
    assert calls(machine).count("apt-get") == tries > 0


def test_python_packages_come_from_the_lock_and_only_once(machine: Path) -> None:
    set_up(machine)
    installs = [line for line in calls(machine) if " install " in line]
    assert len(installs) == 2
    assert "install --require-hashes -r requirements/dev.lock" in installs[0]
    assert "install --no-deps --no-build-isolation --editable ." in installs[1]
    again = set_up(machine)
    assert "setup: Python packages are as locked" in again.stdout
    assert [line for line in calls(machine) if " install " in line] == installs


def test_a_changed_lock_is_installed(machine: Path) -> None:
    set_up(machine)
    with (machine / "requirements" / "dev.lock").open("a", encoding="utf-8") as lock:
        lock.write("# changed\n")
    set_up(machine)
    assert len([line for line in calls(machine) if " install " in line]) == 4


def test_an_old_python_is_told_clearly(machine: Path) -> None:
    (machine / "bin" / "python3").unlink()
    add_tool(machine, "python3", '#!/usr/bin/env bash\n[ "$1" = --version ] && echo Python 3.9.2\nexit 1\n')
    done = set_up(machine)
    assert done.returncode == 1
    assert done.stderr.startswith("setup: Python 3.11 or newer is needed; found Python 3.9.2")
    named = set_up(machine, PYTHON="python3")
    assert (named.returncode, named.stderr) == (1, "setup: PYTHON=python3 is not a Python 3.11 or newer\n")


def test_every_make_target_is_listed_by_make_help() -> None:
    listed = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    targets = {line.split()[1] for line in listed.splitlines()}
    assert targets >= {"setup", "demo", "test", "check", "bench", "conformance", "format", "docs", "clean"}


def test_ci_runs_the_checks_and_then_the_tests() -> None:
    script = ROOT / ".ci" / "run"
    commands = [line for line in script.read_text(encoding="utf-8").splitlines() if line.startswith("make ")]
    assert commands == ["make check", "make test"]
    assert os.access(script, os.X_OK)
