"""Child processes are waited for, ended, and tell why they failed."""

from __future__ import annotations

import sys
import urllib.request

import pytest

from dabom.testing import free_port, running

SERVER = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1"]


def test_a_server_runs_inside_the_block_only() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    with running([*SERVER, str(port)], url) as child:
        with urllib.request.urlopen(url) as answer:
            assert answer.status == 200
        assert child.poll() is None
    assert child.poll() is not None


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
