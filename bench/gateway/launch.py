"""Starts a server for a measurement, watches what it costs and stops it."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import psutil

if TYPE_CHECKING:
    from types import TracebackType

ROOT: Final = Path(__file__).resolve().parents[2]
_POLL_S: Final = 0.05
_STOP_S: Final = 5.0


class LaunchError(Exception):
    """A server that did not come up; the message has the end of its log."""


@dataclass(frozen=True)
class Launch:
    """How a server is started. `env` is added to the environment of the caller."""

    name: str
    argv: tuple[str, ...]
    port: int
    env: dict[str, str] = field(default_factory=dict)
    cwd: Path = ROOT
    ready_s: float = 60.0
    ready_path: str = "/v1/models"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def on_core(argv: tuple[str, ...], core: int | None) -> list[str]:
    """The command bound to one core, where the machine can do that."""
    taskset = shutil.which("taskset")
    return list(argv) if core is None or taskset is None else [taskset, "-c", str(core), *argv]


class Running:
    """A server from start to stop, with all its child processes. Use it as a context manager."""

    def __init__(self, launch: Launch, log: Path, core: int | None = None) -> None:
        self.launch = launch
        self.base = f"http://127.0.0.1:{launch.port}"
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            self._child = subprocess.Popen(
                on_core(launch.argv, core),
                cwd=launch.cwd,
                env=os.environ | launch.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def peak_rss_mb(self) -> float:
        """Sum of the peak resident sizes (VmHWM) of all its processes, in MB of 10^6 bytes."""
        return sum(_peak_kib(process.pid) for process in self._tree()) * 1024 / 1e6

    def cpu_s(self) -> float:
        """CPU time of all its processes so far."""
        times = (process.cpu_times() for process in self._tree())
        return sum(spent.user + spent.system for spent in times)

    def stop(self) -> None:
        """Ends it and its children; kills what does not end by itself."""
        tree = self._tree()
        self._child.terminate()
        try:
            self._child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        for process in tree:
            if process.is_running():
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._child.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _wait_ready(self) -> None:
        until = time.monotonic() + self.launch.ready_s
        while time.monotonic() < until:
            if self._child.poll() is not None:
                raise LaunchError(f"ended with {self._child.returncode}: {self._log_end()}")
            if self._answers():
                return
            time.sleep(_POLL_S)
        raise LaunchError(f"not ready after {self.launch.ready_s:g} s: {self._log_end()}")

    def ask(self, path: str) -> dict[str, Any]:
        """The JSON of a GET."""
        status, page = self._get(path)
        if status != 200:
            raise LaunchError(f"{self.launch.name} answered {status} to {path}")
        found: dict[str, Any] = json.loads(page)
        return found

    def _answers(self) -> bool:
        try:
            return self._get(self.launch.ready_path)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.launch.port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _log_end(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-3:])[-400:] or "its log is empty"


def _peak_kib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


def stub_launch(latency_ms: float = 0.0, events: int = 64) -> Launch:
    """The stub upstream on a free port."""
    port = free_port()
    argv = (sys.executable, "-m", "bench.gateway.stub", "--port", str(port))
    return Launch("stub", (*argv, "--latency-ms", str(latency_ms), "--events", str(events)), port)
