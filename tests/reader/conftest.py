from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dabom.reader.listening import Listener
from dabom.reader.reading import Reader
from dabom.reader.text import TextReader
from dabom.testing import free_port, running

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = Path(__file__).parents[2] / "samples"


@dataclass(frozen=True)
class Server:
    url: str

    def get(self, path: str) -> tuple[int, bytes]:
        return self._open(urllib.request.Request(self.url + path))  # noqa: S310 - a loopback address

    def post(self, body: Any, path: str = "/v1/chat/completions") -> tuple[int, bytes]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        return self._open(urllib.request.Request(self.url + path, content, headers))  # noqa: S310 - a loopback address

    def ask(self, body: Any) -> dict[str, Any]:
        status, answer = self.post(body)
        assert status == 200, answer
        found: dict[str, Any] = json.loads(answer)
        return found

    def refusal(self, body: Any) -> tuple[int, dict[str, Any]]:
        status, answer = self.post(body)
        found: dict[str, Any] = json.loads(answer)["error"]
        assert set(found) == {"message", "type", "param", "code"}
        return status, found

    @staticmethod
    def _open(request: urllib.request.Request) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(request, timeout=50) as answer:  # noqa: S310 - a loopback address
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "dabom.reader", "--port", str(port), "--workers", "2"]
    command += ["--with-parent", str(os.getpid())]
    url = f"http://127.0.0.1:{port}"
    with running(command, f"{url}/health"):
        yield Server(url)


@pytest.fixture(scope="session")
def truth() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SAMPLES / "truth.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="session")
def text_reader() -> Iterator[TextReader]:
    reader = TextReader()
    yield reader
    reader.close()


@pytest.fixture(scope="session")
def listener() -> Listener:
    return Listener()


@pytest.fixture(scope="session")
def reader() -> Iterator[Reader]:
    found = Reader()
    yield found
    found.close()
