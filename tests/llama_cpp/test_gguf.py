"""A GGUF that the gateway itself serves: a child with llama.cpp, started, started again, and ended."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from PIL import Image

from dabom.testing import free_port, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_UPSTREAM = "upstreams:\n  - kind: llama_cpp\n    name: tiny\n    gguf: {gguf}\n    concurrency: 2\n"


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "DABOM_", "MAX_BATCH_"))}


@contextlib.contextmanager
def _serving(file: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    root = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "dabom.cli", "serve", "--config", str(file), "--port", root[-5:]]
    with running(command, f"{root}/healthz", env=_environment(), within_s=40) as child:
        yield root, child


def _ask(root: str, **body: Any) -> dict[str, Any]:
    data = json.dumps({"model": "tiny", "max_tokens": 4, "temperature": 0, **body}).encode()
    asked = urllib.request.Request(  # noqa: S310 - a loopback URL made here
        f"{root}/v1/chat/completions", data, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=30) as answer:  # noqa: S310 - the same
        told: dict[str, Any] = json.load(answer)
        return told


def _picture() -> list[dict[str, Any]]:
    file = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(file, "PNG")
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "what is it?"}]
    return [{"role": "user", "content": parts}]


def _child_of(gateway: subprocess.Popen[bytes]) -> psutil.Process:
    family = psutil.Process(gateway.pid).children(recursive=True)
    return next(one for one in family if "dabom.llama_cpp" in one.cmdline())


def _write(folder: Path, gguf: Path, mmproj: Path | None = None) -> Path:
    file = folder / "dabom.yaml"
    more = "" if mmproj is None else f"    mmproj: {mmproj}\n"
    file.write_text(_UPSTREAM.format(gguf=gguf) + more, encoding="utf-8")
    return file


def test_it_is_served_comes_back_and_ends_with_the_gateway(gguf: Path, tmp_path: Path) -> None:
    file = _write(tmp_path, gguf / "model.gguf", gguf / "mmproj.gguf")
    with _serving(file) as (root, gateway):
        told = _ask(root, messages=_picture())
        assert told["model"] == "tiny"
        assert told["usage"]["completion_tokens"] > 0
        first = _child_of(gateway)
        first.kill()
        first.wait(10)
        end = time.monotonic() + 30
        while True:
            with contextlib.suppress(urllib.error.URLError):
                assert _ask(root, messages=[{"role": "user", "content": "hello"}])["choices"]
                break
            assert time.monotonic() < end
            time.sleep(0.1)
        second = _child_of(gateway)
        assert second.pid != first.pid
        gateway.send_signal(signal.SIGTERM)
        assert gateway.wait(20) == 0
        assert not second.is_running() or second.status() == psutil.STATUS_ZOMBIE


def test_it_ends_when_the_gateway_is_killed(gguf: Path, tmp_path: Path) -> None:
    with _serving(_write(tmp_path, gguf / "model.gguf")) as (_, gateway):
        child = _child_of(gateway)
        gateway.kill()
        gateway.wait(10)
        psutil.wait_procs([child], timeout=10)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_file_that_is_no_gguf_ends_the_command_with_2_and_the_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF but not really")
    file = _write(tmp_path, tmp_path / "broken.gguf")
    command = [sys.executable, "-m", "dabom.cli", "serve", "--config", str(file), "--port", "0"]
    done = subprocess.run(
        command, env=_environment(), cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "llama.cpp of tiny" in line]
    assert "llama.cpp of tiny did not start: " in line
    assert "error loading model" in line
    assert f"{tmp_path / 'broken.gguf'} cannot be served" in line
    assert ".py" not in done.stderr
    assert "started again" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "no.gguf", "--port", "1"), "no.gguf is no file"),
        (("--port", "1"), "--model"),
        (("--model", "it.gguf", "--port", "1", "--context", "900000000"), "2,147,483,647 tokens"),
    ],
)
def test_the_child_alone_tells_wrong_use(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "it.gguf").touch()
    command = [sys.executable, "-m", "dabom.llama_cpp", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
