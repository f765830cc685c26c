"""Child processes are waited for, ended, and tell why they failed."""

from __future__ import annotations

import sys
import time
import urllib.request
from typing import TYPE_CHECKING

import psutil
import pytest

from dabom.testing import free_port, running

if TYPE_CHECKING:
    from pathlib import Path

PARENT = """
import http.server, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"])
http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind="127.0.0.1")
"""
SERVER = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1"]


def test_a_server_runs_inside_the_block_only() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    with running([*SERVER, str(port)], url) as child:
        with urllib.request.urlopen(url) as answer:
            assert answer.status == 200
        assert child.poll() is None
    assert child.poll() is not None


def test_children_of_a_child_end_with_it(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    port = free_port()
    with running([sys.executable, str(script), str(port)], f"http://127.0.0.1:{port}/") as child:
        (grandchild,) = psutil.Process(child.pid).children()
    end = time.monotonic() + 5
    while grandchild.is_running() and grandchild.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_what_a_dead_child_printed_is_in_the_error() -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]
    with pytest.raises(RuntimeError, match="no such model"), running(command, "http://127.0.0.1:9/"):
        pass


def test_a_child_that_never_listens_is_given_up() -> None:
    command = [sys.executable, "-c", "import time; print('loading', flush=True); time.sleep(60)"]
    with (
        pytest.raises(TimeoutError, match="loading"),
        running(command, f"http://127.0.0.1:{free_port()}/", within_s=1),
    ):
        pass
