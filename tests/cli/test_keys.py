"""`dabom keys` as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from dabom.gateway import hash_line

if TYPE_CHECKING:
    from pathlib import Path


def _keys(*args: str, given: str = "", folder: Path | None = None) -> tuple[int, str, str]:
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("DABOM_", "VLLM_", "MAX_BATCH_"))}
    done = subprocess.run(
        [sys.executable, "-m", "dabom.cli", "keys", *args],
        input=given,
        cwd=folder,
        capture_output=True,
        text=True,
        env={**outside, "NO_COLOR": "1"},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def _secret(err: str) -> str:
    return next(word for word in err.split() if word.startswith("dabom-"))


def test_a_new_key_is_shown_once_and_only_its_hash_goes_into_the_file(tmp_path: Path) -> None:
    code, out, err = _keys("new", "--id", "anna", "--lang", "en")
    assert code == 0
    assert len(_secret(err)) == len("dabom-") + 43
    assert _secret(err) not in out
    (tmp_path / "dabom.yaml").write_text("base_url: http://127.0.0.1:9/v1\nkeys:\n" + out, encoding="utf-8")
    settings = yaml.safe_load((tmp_path / "dabom.yaml").read_text(encoding="utf-8"))
    assert settings["keys"] == [{"id": "anna", "hash": hash_line(_secret(err))}]
    code, out, err = _keys("check", "--config", "dabom.yaml", given=_secret(err) + "\n", folder=tmp_path)
    assert (code, out, err) == (0, "id: anna\n", "")


def test_two_new_keys_are_different() -> None:
    made = [json.loads(_keys("new", "--json")[1]) for _ in range(2)]
    assert len({one["key"] for one in made}) == len({one["id"] for one in made}) == 2
    assert all(one["hash"] == hash_line(one["key"]) for one in made)


def test_a_key_that_is_in_use_keeps_its_secret() -> None:
    key = "sk-litellm-0123456789abcdef"
    code, out, err = _keys("new", "--existing", "--id", "old", given=key + "\n")
    assert (code, out, err) == (0, f"  - id: old\n    hash: {hash_line(key)}\n", "")


def test_the_key_of_the_admin_is_a_line_of_its_own() -> None:
    code, out, err = _keys("new", "--admin", "--lang", "en")
    assert (code, out) == (0, f"admin_key: {hash_line(_secret(err))}\n")


@pytest.mark.parametrize(
    ("args", "given", "told"),
    [
        (("new", "--existing", "--lang", "en"), "short\n", "the key has 5 characters; it needs 20"),
        (("new", "--existing", "--lang", "ko"), "short\n", "20자 이상"),
        (("new", "--id", "two words", "--lang", "en"), "", "--id takes up to 64 letters"),
    ],
)
def test_what_is_no_key_is_told(args: tuple[str, ...], given: str, told: str) -> None:
    code, out, err = _keys(*args, given=given)
    assert (code, out) == (2, "")
    assert told in err


def test_check_shows_what_a_key_may_do(tmp_path: Path) -> None:
    key = "sk-0123456789abcdef0123"
    (tmp_path / "dabom.yaml").write_text(
        "base_url: http://127.0.0.1:9/v1\n"
        f"keys:\n  - id: anna\n    hash: {hash_line(key)}\n    requests_per_minute: 60\n    priority: batch\n"
        "    expires: 2027-01-31T00:00:00+09:00\n",
        encoding="utf-8",
    )
    code, out, _ = _keys("check", "--config", "dabom.yaml", "--json", given=key, folder=tmp_path)
    assert code == 0
    assert json.loads(out) == {
        "id": "anna",
        "requests_per_minute": 60,
        "priority": "batch",
        "expires": "2027-01-31T00:00:00+09:00",
    }
    code, out, err = _keys("check", "--config", "dabom.yaml", "--lang", "en", given="x", folder=tmp_path)
    assert (code, out) == (1, "")
    assert "none of the keys" in err
