from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from dabom.testing import free_port

_SCRIPT = Path(__file__).parents[2] / "script" / "service.sh"

Service = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def var(tmp_path: Path) -> Path:
    return tmp_path / "var"


@pytest.fixture
def service(var: Path, port: int) -> Iterator[Service]:
    """The script on a port and a folder of its own, in front of an upstream that is not there."""

    def run(verb: str, cwd: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        ours = {
            "DABOM_VAR": str(var),
            "DABOM_BIN": str(Path(sys.executable).parent),
            "DABOM_PORT": str(port),
            "VLLM_BASE_URL": "http://127.0.0.1:9/v1",
        }
        return subprocess.run(
            [str(_SCRIPT), *verb.split()],
            env={**os.environ, **ours, **env},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    yield run
    run("stop", DABOM_STOP_SECONDS="5")


def _pid(var: Path) -> int:
    return int((var / "dabom.pid").read_text())


def test_start_status_restart_stop(service: Service, var: Path, port: int) -> None:
    started = service("start")
    assert started.returncode == 0, started.stderr
    assert started.stdout == ""
    first = _pid(var)
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    link.request("GET", "/healthz")
    assert link.getresponse().status == 200
    link.close()

    status = service("status", DABOM_PORT="1")  # the port is the running one's
    assert status.returncode == 0
    assert status.stdout.split() == ["PID", str(first), "port", str(port), "healthz", '{"ok":true}']

    again = service("start")
    assert again.returncode == 0
    assert f"already running: PID {first}" in again.stderr
    assert _pid(var) == first

    assert service("restart").returncode == 0
    second = _pid(var)
    assert second != first
    assert not psutil.pid_exists(first) or psutil.Process(first).status() == psutil.STATUS_ZOMBIE

    stopped = service("stop")
    assert (stopped.returncode, stopped.stderr.strip()) == (0, f"stopped: PID {second}")
    assert not (var / "dabom.pid").exists()
    assert service("status").returncode == 1


def test_reload(service: Service, tmp_path: Path) -> None:
    told = service("reload")
    assert (told.returncode, told.stderr.strip()) == (1, "not running")
    file = tmp_path / ".env"  # the gateway's folder is the caller's
    assert service("start", cwd=str(tmp_path)).returncode == 0
    file.write_text("DABOM_IDLE_TIMEOUT_S=50\n")
    told = service("reload")
    assert (told.returncode, told.stdout) == (0, "")
    assert "the settings are loaded anew" in told.stderr
    file.write_text("DABOM_IDLE_TIMEOUT_S=soon\n")
    told = service("reload")
    assert told.returncode == 1
    assert "the settings stay as they are" in told.stderr
    assert service("status").returncode == 0


def test_a_pid_that_is_another_programs_is_left_alone(service: Service, var: Path) -> None:
    var.mkdir()
    with subprocess.Popen(["sleep", "60"]) as bystander:
        try:
            (var / "dabom.pid").write_text(f"{bystander.pid}\n")
            assert service("status").returncode == 1
            assert service("stop").stderr.strip() == "not running"
            (var / "dabom.pid").write_text(f"{bystander.pid}\n")
            assert service("start").returncode == 0
            assert _pid(var) != bystander.pid
            assert bystander.poll() is None
        finally:
            bystander.kill()


@pytest.mark.parametrize("content", ["", "garbage", "99999999", "1 2 3\n"])
def test_a_broken_pid_file_is_no_running_gateway(service: Service, var: Path, content: str) -> None:
    var.mkdir()
    (var / "dabom.pid").write_text(content)
    status = service("status")
    assert (status.returncode, status.stdout) == (1, "not running\n")
    assert service("stop").returncode == 0


def test_a_port_in_use_is_told(service: Service, var: Path, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        refused = service("start")
    assert refused.returncode == 1
    assert f"port {port} is in use" in refused.stderr
    assert "DABOM_PORT" in refused.stderr
    assert not (var / "dabom.pid").exists()


def test_a_gateway_that_ends_while_starting_is_told_with_its_log(service: Service, var: Path) -> None:
    failed = service("start", VLLM_CONCURRENCY="many")
    assert failed.returncode == 1
    assert "ended while starting" in failed.stderr
    assert "VLLM_CONCURRENCY" in failed.stderr
    assert not (var / "dabom.pid").exists()


@pytest.mark.parametrize("verb", ["", "begin", "--help"])
def test_wrong_use_is_2(service: Service, verb: str) -> None:
    wrong = service(verb)
    assert wrong.returncode == 2
    assert "start|status|reload|restart|stop" in wrong.stderr
