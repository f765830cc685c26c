from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dabom.clips.manifest import read_manifest
from dabom.media import FileSource, read_facts

ROOT = Path(__file__).parents[2]
BROADCAST = ROOT / "samples" / "broadcast.mp4"


def dabom(*args: object, language: str = "en") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "dabom.cli", "clips", *map(str, args), "--lang", language],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree") / "clips" / "news" / "broadcast"
    code, _, error = dabom("cut", BROADCAST, folder)
    assert (code, error) == (0, "")
    return folder


def test_cut_writes_the_same_lines_to_the_manifest_and_to_standard_output(tmp_path: Path) -> None:
    code, out, told = dabom("cut", BROADCAST, tmp_path, "--start", "0:06", "--end", "18", "--json")
    assert code == 0
    assert out == (tmp_path / "manifest.jsonl").read_text()
    assert [json.loads(line)["clip"] for line in out.splitlines()] == [
        "0001_0006-0012.mp4",
        "0002_0012-0018.mp4",
    ]
    assert "2 clips made, 0 kept" in told


def test_a_line_of_the_manifest_has_every_field(cut: Path) -> None:
    line = json.loads((cut / "manifest.jsonl").read_text().splitlines()[0])
    assert (line["frames"], line["fps"], line["width"], line["height"]) == (60, 10, 640, 360)
    assert (line["samples"], line["sample_rate"], line["bytes"]) == (
        96_256,
        16_000,
        (cut / line["clip"]).stat().st_size,
    )
    assert line["tokens"]["qwen3-vl"] == {"video": 1368}
    assert line["tokens"]["qwen3-omni"] == {"video": 1401, "audio": 1401}
    assert {len(line[name]) for name in ("sha256", "video_sha256", "audio_sha256")} == {64}
    assert line["problems"] == []
    assert 0 <= line["black"] <= line["freeze"] <= 1


def test_a_second_cut_keeps_what_is_there(cut: Path) -> None:
    assert "0 clips made, 5 kept" in dabom("cut", BROADCAST, cut)[1]
    assert "클립 0개를 만들고 5개는 그대로" in dabom("cut", BROADCAST, cut, language="ko")[1]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("nowhere.mp4",), "cannot be read (No such file or directory)"),
        ((BROADCAST, "--start", "99:00"), "after the end of the recording"),
        ((BROADCAST, "--profile", "huge"), "one of lean, caption, seed"),
        ((BROADCAST, "--sound", "kor"), "has no sound track 'kor'"),
        ((ROOT / "pyproject.toml",), "not a recording that is read"),
    ],
)
def test_wrong_use_is_told_and_ends_with_2(tmp_path: Path, args: tuple[object, ...], told: str) -> None:
    source, *rest = args
    code, out, error = dabom("cut", source, tmp_path / "out", *rest)
    assert (code, out) == (2, "")
    assert told in error
    assert "Traceback" not in error


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code, _, error = dabom("cut", BROADCAST, tmp_path / "file" / "out")
    assert code == 1
    assert "cannot be written" in error


def test_controls_of_a_folder_one_in_n(cut: Path, tmp_path: Path) -> None:
    code, out, _ = dabom("control", cut, tmp_path, "--kind", "swap-audio", "--every", "2", "--json")
    assert code == 0
    origins = {clip.clip: clip for clip in read_manifest(cut)}
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["clip"][:4] for line in lines] == ["0001", "0003", "0005"]
    for line in lines:
        assert line["video_sha256"] == origins[line["origin"]].video_sha256
        assert line["audio_sha256"] != origins[line["origin"]].audio_sha256
    assert dabom("control", cut / "none.mp4", tmp_path)[0] == 2


def test_the_table_of_a_tree(cut: Path) -> None:
    code, out, _ = dabom("table", cut.parents[1], language="ko")
    assert code == 0
    row = next(line for line in out.splitlines() if "news" in line).split()
    assert row == ["news", "뉴스", "broadcast", "5", "640×360", "10", "0.07", "MB"]
    found = json.loads(dabom("table", cut, "--json")[1])
    assert (found["clips"], found["resolution"], found["fps"]) == (5, "640×360", 10)
    assert dabom("table", cut / "nothing")[0] == 2


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_cut_that_is_ended_leaves_no_half_file_and_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    args = [
        "clips",
        "cut",
        str(BROADCAST),
        str(tmp_path),
        "--every",
        "2",
        "--profile",
        "caption",
        "--lang",
        "en",
    ]
    child = subprocess.Popen([sys.executable, "-m", "dabom.cli", *args], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 40
    while not list(tmp_path.glob("*.mp4")) and time.monotonic() < deadline:
        time.sleep(0.005)
    child.send_signal(how)
    _, told = child.communicate(timeout=20)
    whole = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.mp4")}
    assert 0 < len(whole) < 15
    for name in whole:
        with (tmp_path / name).open("rb") as file:
            assert read_facts(FileSource(file)).frames == 20
    if how != signal.SIGKILL:
        assert child.returncode == 130
        assert "finished clips stay" in told
        assert not list(tmp_path.glob(".*"))
    code, out, _ = dabom(*args[1:-2])
    assert code == 0
    assert f"{15 - len(whole)} clips made, {len(whole)} kept" in out
    assert len(read_manifest(tmp_path)) == 15
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in whole} == whole
    assert not list(tmp_path.glob(".*"))


def test_prepare_data_makes_the_tree_of_the_benchmark(tmp_path: Path) -> None:
    raw = tmp_path / "raw" / "news"
    raw.mkdir(parents=True)
    shutil.copy(BROADCAST, raw / "news.mp4")
    environ = {**os.environ, "DABOM_DATA": str(tmp_path), "DABOM_BIN": str(Path(sys.executable).parent)}
    environ |= {"START": "0", "END": "12"}
    script = str(ROOT / "script" / "prepare_data.sh")
    done = subprocess.run([script], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr.count("원본 없음, 건너뜀") == 6
    clips, black = tmp_path / "clips/news/news", tmp_path / "blackout/news/news"
    assert [clip.clip for clip in read_manifest(clips)] == ["0001_0000-0006.mp4", "0002_0006-0012.mp4"]
    assert [(clip.profile, clip.frames) for clip in read_manifest(clips)] == [("seed", 150)] * 2
    assert read_manifest(black)[0].audio_sha256 == read_manifest(clips)[0].audio_sha256
    named = subprocess.run([script, "docu", "docu.mp4"], env=environ, capture_output=True, check=False)
    assert named.returncode == 1
    outside = subprocess.run([script, "..", "docu.mp4"], env=environ, capture_output=True, check=False)
    assert outside.returncode == 2
