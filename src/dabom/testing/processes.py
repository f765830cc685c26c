"""Real servers as child processes: started, waited for, ended."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Below those that systems give out on their own: no server of another test gets one before it is used.
_PORTS = range(20_000, 32_000)
_POLL_S = 0.02
_END_WITHIN_S = 20
_TAIL_BYTES = 4000


def free_port() -> int:
    """A loopback port that nobody listens on."""
    while True:
        port = random.choice(_PORTS)  # noqa: S311 - no secret
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def running(
    command: Sequence[str],
    ready_url: str,
    *,
    env: Mapping[str, str] | None = None,
    within_s: float = 20,
) -> Iterator[subprocess.Popen[bytes]]:
    """A child process, from the moment that `ready_url` answers 200 until SIGTERM and its end.

    It runs in an empty folder, so that no settings file is picked up. What it printed is in the error when it
    dies or is not ready in time.
    """
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("wb") as log:
        child = subprocess.Popen(  # noqa: S603 - the caller's own command, no shell
            command, stdout=log, stderr=subprocess.STDOUT, env=env, cwd=folder, start_new_session=True
        )
        try:
            _wait_ready(child, ready_url, within_s, Path(log.name))
            yield child
        finally:
            _end(child)


@contextlib.contextmanager
def running_gateway(upstream_url: str, **settings: str) -> Iterator[str]:
    """The root URL of `dabom serve` in front of one upstream; `settings` are further environment names."""
    port = free_port()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "DABOM_", "MAX_BATCH_"))}
    env = {**kept, "VLLM_BASE_URL": upstream_url, **settings}
    command = [sys.executable, "-m", "dabom.cli", "serve", "--port", str(port)]
    root = f"http://127.0.0.1:{port}"
    with running(command, f"{root}/healthz", env=env):
        yield root


def _end(child: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL to what is left of it, children of its own included."""
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_END_WITHIN_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _wait_ready(child: subprocess.Popen[bytes], url: str, within_s: float, log: Path) -> None:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if child.poll() is not None:
            raise RuntimeError(f"{child.args!r} ended with {child.returncode}:\n{_tail(log)}")
        if _answers(url):
            return
        time.sleep(_POLL_S)
    raise TimeoutError(f"{url} did not answer within {within_s} s:\n{_tail(log)}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - a loopback URL made here
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _tail(log: Path) -> str:
    return log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
