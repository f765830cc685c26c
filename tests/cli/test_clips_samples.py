"""The samples, asked about through a gateway and its reader, against what their maker wrote down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dabom.testing import free_port
from dabom.testing.processes import running

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.fixture(scope="module")
def gateway() -> Iterator[str]:
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    env = {key: value for key, value in os.environ.items() if not key.startswith(("VLLM_", "DABOM_"))}
    command = [sys.executable, "-m", "dabom.cli", "serve", "--port", str(port)]
    with running(command, f"{root}/readyz", env=env, within_s=50):
        yield root


def clips(folder: Path, *args: str) -> str:
    command = [sys.executable, "-m", "dabom.cli", "clips", *args, "--database", "runs.db"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def asked(folder: Path, gateway: str, *args: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    told = json.loads(clips(folder, "run", str(SAMPLES / "clips"), "--url", gateway, "--json", *args))
    rows = [json.loads(line) for line in clips(folder, "export", told["run"]).splitlines()]
    return told, rows


def plain(text: str) -> str:
    return "".join(char for char in text if char.isalnum())


@pytest.mark.timeout(150)
def test_every_clip_is_answered_as_its_truth_says(gateway: str, tmp_path: Path) -> None:
    told, rows = asked(tmp_path, gateway, "--controls", "blackout,mute", "--every", "1")
    truth = json.loads((SAMPLES / "truth.json").read_text(encoding="utf-8"))["clips"]
    assert (told["protocol"], told["done"], told["failed"]) == ("interleaved", 3 * len(truth), 0)
    found = {(row["clip"].partition("#")[0], row["control"]): row for row in rows}
    for clip in truth:
        name = clip["file"].removeprefix("clips/").removesuffix(".mp4")
        own, black, mute = (found[name, control] for control in (None, "blackout", "mute"))
        for caption in clip["captions"]:
            assert plain(caption["text"]) in plain(own["on_screen_text"]), own
            assert plain(caption["text"]) in plain(mute["on_screen_text"]), mute
        assert bool(own["speech"]) is bool(black["speech"]) is bool(clip["speech"])
        assert "검은 화면" in black["scene"]
        assert (black["on_screen_text"], mute["speech"]) == ("", "")
        assert (black["claims"], mute["claims"], own["claims"]) == (False, False, None)


@pytest.mark.timeout(150)
def test_frames_and_sound_tell_the_same(gateway: str, tmp_path: Path) -> None:
    told, rows = asked(tmp_path, gateway, "--form", "frames")
    truth = json.loads((SAMPLES / "truth.json").read_text(encoding="utf-8"))["clips"]
    assert (told["protocol"], told["done"], told["failed"]) == ("separate", len(truth), 0)
    for clip, row in zip(truth, rows, strict=True):
        assert bool(row["speech"]) is bool(clip["speech"])
        for caption in clip["captions"]:
            assert plain(caption["text"]) in plain(row["on_screen_text"]), row
