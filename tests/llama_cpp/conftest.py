"""llama.cpp's own server with a tiny random Qwen3-VL, and a gateway in front of it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dabom.testing import free_port, running, running_gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with model.gguf and mmproj.gguf."""
    folder = tmp_path_factory.mktemp("gguf")
    subprocess.run([sys.executable, HERE / "tiny_gguf.py", folder], check=True, timeout=50)
    return folder


@contextlib.contextmanager
def llama_cpp(*files: Path) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, str(HERE / "serve.py"), str(port), *map(str, files)]
    with running(command, f"http://127.0.0.1:{port}/health"):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def upstream_url(gguf: Path) -> Iterator[str]:
    """The root URL of llama.cpp with vision."""
    with llama_cpp(gguf / "model.gguf", gguf / "mmproj.gguf") as url:
        yield url


@pytest.fixture(scope="session")
def blind_url(gguf: Path) -> Iterator[str]:
    """The root URL of llama.cpp without mmproj: it cannot see."""
    with llama_cpp(gguf / "model.gguf") as url:
        yield url


@pytest.fixture(scope="session")
def gateway_url(upstream_url: str) -> Iterator[str]:
    with running_gateway(f"{upstream_url}/v1") as url:
        yield url


@pytest.fixture(scope="session")
def blind_gateway_url(blind_url: str) -> Iterator[str]:
    with running_gateway(f"{blind_url}/v1") as url:
        yield url
