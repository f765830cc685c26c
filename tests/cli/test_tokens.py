from __future__ import annotations

import json
import os
import subprocess
import sys
import wave
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import pytest
from PIL import Image

if TYPE_CHECKING:
    from pathlib import Path

_RUN = "import typer; from dabom.cli.tokens import tokens; typer.run(tokens)"
_KEYS = ["path", "kind", "width", "height", "seconds", "frames_sampled", "tokens", "prompt_tokens", "explain"]


def _tokens(*args: str, lang: str = "en") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *args, "--lang", lang],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100"},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def _picture(path: Path, size: tuple[int, int] = (1344, 1344), turned: bool = False) -> str:
    exif = Image.Exif()
    if turned:
        exif[0x0112] = 6
    Image.new("RGB", size).save(path, exif=exif)
    return str(path)


def _sound(path: Path, samples: int) -> str:
    with wave.open(str(path), "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(16_000)
        out.writeframes(bytes(samples * 4))
    return str(path)


def _clip(path: Path, frames: int = 60, fps: int = 10, sound: bool = True) -> str:
    with av.open(str(path), "w") as out:
        track = out.add_stream("mpeg4", rate=fps)
        track.width, track.height, track.pix_fmt = 64, 48, "yuv420p"
        voice = out.add_stream("aac", rate=16_000, layout="mono") if sound else None
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), number, np.uint8), format="rgb24")
            out.mux(track.encode(frame))
        out.mux(track.encode(None))
        if voice is not None:
            silence = av.AudioFrame.from_ndarray(np.zeros((1, 96_000), np.int16), format="s16", layout="mono")
            silence.sample_rate, silence.pts, silence.time_base = 16_000, 0, Fraction(1, 16_000)
            out.mux(voice.encode(silence))
            out.mux(voice.encode(None))
    return str(path)


def test_json_has_a_line_for_each_file_and_a_sum(tmp_path: Path) -> None:
    files = _picture(tmp_path / "a.png"), _clip(tmp_path / "b.mp4"), _sound(tmp_path / "c.wav", 96_000)
    code, out, err = _tokens(*files, "--family", "qwen3-omni", "--use-audio-in-video", "--json")
    told = json.loads(out)
    assert (code, err, list(told)) == (0, "", ["family", "files", "total_prompt_tokens"])
    assert [list(file) for file in told["files"]] == [_KEYS] * 3
    picture, clip, sound = told["files"]
    assert (picture["kind"], picture["width"], picture["seconds"], picture["tokens"]) == (
        "image",
        1344,
        None,
        1764,
    )
    assert (clip["kind"], clip["seconds"], clip["frames_sampled"]) == ("video", 6.0, 12)
    assert clip["tokens"] == {"video": 6 * 140 + 79 + 2, "audio": 921}
    assert (sound["kind"], sound["width"], sound["tokens"], sound["prompt_tokens"]) == ("audio", None, 78, 80)
    assert told["total_prompt_tokens"] == 1766 + 923 + 80


def test_a_turned_picture_is_told_upright_and_costs_the_same(tmp_path: Path) -> None:
    turned = _picture(tmp_path / "a.jpg", (800, 600), turned=True)
    upright = _picture(tmp_path / "b.jpg", (800, 600))
    _, out, _ = _tokens(turned, upright, "--family", "qwen2.5-vl", "--json")
    one, other = json.loads(out)["files"]
    assert (one["width"], one["height"]) == (600, 800)
    assert one["tokens"] == other["tokens"]


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        ((), 6 * 4 + 6 * 8),
        (("--fps", "1"), 3 * 4 + 3 * 8),
        (("--min-pixels", "1000000"), 6 * 88 + 6 * 8),
        (("--max-pixels", "20000"), 6 * 1 + 6 * 8),
    ],
)
def test_options_are_those_of_a_request(options: tuple[str, ...], tokens: int, tmp_path: Path) -> None:
    clip = _clip(tmp_path / "a.mp4", sound=False)
    _, out, _ = _tokens(clip, "--family", "Qwen/Qwen3-VL-8B-Instruct", "--json", *options)
    assert json.loads(out)["files"][0]["tokens"] == tokens


def test_a_folder_gives_the_limits_of_a_checkpoint(tmp_path: Path) -> None:
    picture = _picture(tmp_path / "a.png")
    limits: dict[str, Any] = {"size": {"shortest_edge": 4096, "longest_edge": 262_144}, "patch_size": 16}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(limits))
    _, out, _ = _tokens(picture, "--family", "qwen3-vl", "--preprocessor", str(tmp_path), "--json")
    assert json.loads(out)["files"][0]["tokens"] == 256


def test_what_the_server_would_refuse_has_no_tokens_and_a_reason(tmp_path: Path) -> None:
    strip = _picture(tmp_path / "strip.png", (3000, 10))
    broken = tmp_path / "broken.png"
    broken.write_bytes((tmp_path / "strip.png").read_bytes()[:60])
    short, silent = _sound(tmp_path / "short.wav", 160), _clip(tmp_path / "silent.mp4", sound=False)
    files = (strip, str(broken), short, silent)
    code, out, _ = _tokens(*files, "--family", "qwen3-omni", "--use-audio-in-video", "--json")
    told = json.loads(out)
    assert (code, told["total_prompt_tokens"]) == (1, 0)
    assert [(file["tokens"], file["prompt_tokens"]) for file in told["files"]] == [(None, None)] * 4
    reasons = ["300.0 times", "damaged or cut off", "160 samples", "no sound track"]
    assert all(reason in file["error"] for reason, file in zip(reasons, told["files"], strict=True))


def test_a_file_that_no_server_reads_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')
    (tmp_path / "empty.mp4").touch()
    picture = _picture(tmp_path / "b.png", (64, 64))
    files = (str(tmp_path / "a.svg"), str(tmp_path / "empty.mp4"), picture)
    code, out, _ = _tokens(*files, "--family", "qwen3-vl", "--json")
    told = json.loads(out)["files"]
    assert (code, [file["kind"] for file in told]) == (1, ["image", "video", "image"])
    assert [file["tokens"] for file in told] == [None, None, 64]
    assert [file.get("error") for file in told] == [
        "SVG is no picture of pixels; send it as PNG",
        "the file is empty",
        None,
    ]


def test_a_name_is_shown_as_it_is(tmp_path: Path) -> None:
    _, out, _ = _tokens(_picture(tmp_path / "a[bold]b.png", (64, 64)), "--family", "qwen3-vl")
    assert out.splitlines()[4].split()[0] == "a[bold]b.png"


def test_people_get_a_table_and_the_calculation(tmp_path: Path) -> None:
    clip = _clip(tmp_path / "a.mp4")
    code, out, _ = _tokens(clip, "--family", "qwen3-vl")
    assert code == 0
    assert "60 frames at 10 fps, 2 a second asked for: 12 frames taken" in out
    assert "prompt tokens in all: 74" in out
    _, out, _ = _tokens(clip, "--family", "qwen3-vl", lang="ko")
    assert "60프레임(10 fps)에서 초당 2프레임 요청: 12프레임 사용" in out
    assert "프롬프트 토큰 합계: 74" in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("a.png", "--family", "llama"), "unknown; one of qwen2-vl, qwen2.5-vl, qwen3-vl"),
        (("missing.png", "--family", "qwen3-vl"), "missing.png: cannot be read (No such file or directory)"),
        (("a.txt", "--family", "qwen3-vl"), "a.txt: no picture, clip or sound"),
        (("a.png", "--family", "qwen3-vl", "--preprocessor", "."), "holds no preprocessor_config.json"),
    ],
)
def test_wrong_use_says_what_to_change(
    args: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _picture(tmp_path / "a.png", (8, 8))
    (tmp_path / "a.txt").write_text("not a picture")
    code, out, err = _tokens(*args)
    assert (code, out) == (2, "")
    assert said in err
