from __future__ import annotations

import os
import subprocess
import sys

import pytest

_COMMANDS = ("serve", "chat", "tokens", "clips", "demo", "keys", "audit")
_MAIN = """
import sys
heavy = {"aiohttp", "av", "dabom.client", "dabom.gateway", "fastapi", "numpy", "sqlalchemy", "uvicorn"}
from dabom.cli import main
sys.argv = ["dabom", "--help"]
try:
    main()
finally:
    print(sorted(heavy & {*sys.modules}))
"""


def _dabom(*args: str, columns: int = 80) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "dabom.cli", *args],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def _words(text: str) -> str:
    """The text without frames and line breaks."""
    return " ".join(text.replace("│", " ").split())


def test_the_list_of_commands_imports_none_of_them() -> None:
    done = subprocess.run([sys.executable, "-c", _MAIN], capture_output=True, text=True, check=True)
    assert "serve" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", _COMMANDS)
def test_the_list_says_of_a_command_what_its_own_help_says_first(name: str) -> None:
    _, listed, _ = _dabom("--help", columns=200)
    code, own, _ = _dabom(name, "--help", columns=200)
    row = next(line for line in listed.splitlines() if line.startswith(f"│ {name} "))
    assert code == 0
    assert f" {name} [OPTIONS]" in own
    assert _words(row).removeprefix(f"{name} ") in _words(own)


@pytest.mark.parametrize("args", [(), *((name,) for name in _COMMANDS)])
def test_no_word_is_lost_in_a_narrow_terminal(args: tuple[str, ...]) -> None:
    code, out, _ = _dabom(*args, "--help")
    assert code == 0
    assert "…" not in out


def test_a_mistype_is_wrong_use_and_the_near_word_is_named() -> None:
    code, out, err = _dabom("caht")
    assert (code, out) == (2, "")
    assert "Did you mean 'chat'?" in err


@pytest.mark.parametrize(
    ("wrong", "hint"), [(("--vidoe", "a.mp4"), "--video"), (("--lang", "fr"), "'ko', 'en'")]
)
def test_a_wrong_option_is_wrong_use(wrong: tuple[str, str], hint: str) -> None:
    code, out, err = _dabom("chat", "hello", *wrong)
    assert (code, out) == (2, "")
    assert hint in err
