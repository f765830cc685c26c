"""Clips and results never are in the repository."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

from dabom.cli.clips_words import DATABASE

ROOT = Path(__file__).parents[2]
MEDIA = {".mp4", ".mov", ".mkv", ".ts", ".mxf", ".webm", ".avi", ".wav", ".mp3"}
RESULTS = {".db", ".sqlite", ".jsonl", ".ndjson", ".csv", ".parquet", ".xlsx"}


def git(*args: str) -> list[str]:
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def test_where_clips_and_results_go_by_default_is_ignored() -> None:
    places = [
        "data/raw/news/news.mp4",
        "data/clips/news/news/0001_0600-0606.mp4",
        "data/clips/news/news/manifest.jsonl",
        "data/blackout/news/news/0001_0600-0606.mp4",
        DATABASE,
        f"{DATABASE}-wal",
        f"{DATABASE}.20261201-000000-abcdef.lock",
        "var/report.html",
    ]
    assert git("check-ignore", *places) == places


def test_nothing_of_them_is_tracked() -> None:
    tracked = [PurePosixPath(name) for name in git("ls-files")]
    assert len(tracked) > 100
    assert [name for name in tracked if name.parts[0] in {"data", "var"}] == []
    # what is there was drawn and spoken by script/make_samples.py, or made by a test: nobody's recording
    media = [name for name in tracked if name.suffix in MEDIA]
    assert {str(name.parent) for name in media if name.parts[0] != "samples"} <= {"tests/media/files"}
    assert sum((ROOT / name).stat().st_size for name in media) < 2_000_000
    assert [str(name) for name in tracked if name.suffix in RESULTS] == []


def test_none_of_them_ever_was_in_the_history() -> None:
    names = git("log", "--all", "--format=", "--name-only", "--diff-filter=A")
    assert [name for name in set(names) if name.startswith(("data/", "var/"))] == []
