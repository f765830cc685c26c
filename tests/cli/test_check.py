"""`dabom check` as a command: what it prints, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from dabom.cli.check import check

_ROOT = Path(__file__).parents[2]
_FLEET = """\
upstreams:
  - {name: text, url: 'http://t/v1', model: text-7b, modalities: []}
  - {name: sees, url: 'http://v/v1', model: vl-30b, modalities: [image]}
  - {name: small, url: 'http://w/v1', model: vl-8b, modalities: [image]}
models:
  assistant: text
auto:
  - text: text
  - image fast: small
  - image: [sees, small]
"""


class Run(NamedTuple):
    """How the command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("VLLM_", "DABOM_", "MAX_BATCH_", "LC_", "LANG")):
            monkeypatch.delenv(name)


def _app() -> typer.Typer:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command("check")(check)
    return app


def run(folder: Path, *arguments: str, **environment: str) -> Run:
    with contextlib.chdir(folder):
        done = CliRunner().invoke(_app(), arguments, env=environment)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return Run(done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "dabom.yaml"
    path.write_text(_FLEET, encoding="utf-8")
    return path


def _requests(done: Run) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["model"], one["holds"]): one for one in json.loads(done.stdout)["requests"]}


def test_the_table_says_where_each_kind_of_request_goes(file: Path) -> None:
    done = run(file.parent, "--config", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line.split("│")[1].strip(): line for line in done.stdout.splitlines() if line.startswith("│")}
    assert "sees → small" in rows["auto"]
    assert "✗ 400 modality_not_served" in rows["auto"]
    assert rows["auto-fast"].split("│")[3].strip() == "small"
    assert "auto: sees → small" in rows["assistant"]
    assert "✗ 404 model_not_found" in rows["(unknown name)"]
    assert "no mistakes" in done.stdout


def test_it_speaks_korean(file: Path) -> None:
    done = run(file.parent, "--config", str(file), LANG="ko_KR.UTF-8")
    assert "요청이 가는 곳" in done.stdout
    assert "업스트림" in run(file.parent, "--config", str(file), "--lang", "ko").stdout
    told = run(file.parent, "--config", "no.yaml", "--lang", "ko").stderr
    assert told == "no.yaml을(를) 읽을 수 없습니다: 그런 파일이 없습니다\n"
    assert run(file.parent, "--config", ".").stderr == ". cannot be read: it is no plain file\n"


def test_programs_get_all_of_it(file: Path) -> None:
    done = run(file.parent, "--config", str(file), "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"], told["mistakes"]) == (0, True, [])
    assert [one["name"] for one in told["upstreams"]] == ["text", "sees", "small"]
    requests = _requests(done)
    assert requests["auto", "image"]["steps"] == [["sees"], ["small"]]
    assert (requests["auto", "image"]["reason"], requests["auto", "image"]["rule"]) == ("auto", 3)
    assert requests["text-7b", "text"]["steps"] == [["text"]]
    assert requests["text-7b", "image"]["reason"] == "modality"
    assert requests["agent", "audio"]["error"]["code"] == "modality_not_served"
    assert requests["no-such-model", "text"]["error"]["status"] == 404


def test_a_mistake_ends_with_1_and_its_line(file: Path) -> None:
    file.write_text(_FLEET + "default_route: nobody\nconcurency: 3\n", encoding="utf-8")
    done = run(file.parent, "--config", str(file))
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert lines[0].startswith(f"mistake: {file}, line 11: ")
    assert lines[1] == f"mistake: {file}, line 12: there is no setting concurency; did you mean concurrency?"
    told = json.loads(run(file.parent, "--config", str(file), "--json").stdout)
    assert (told["ok"], [one["line"] for one in told["mistakes"]]) == (False, [11, 12])


def test_a_secret_in_the_file_is_warned_of(file: Path) -> None:
    file.write_text(_FLEET + "api_key: sk-in-clear\n", encoding="utf-8")
    done = run(file.parent, "--config", str(file))
    assert done.returncode == 0
    assert done.stderr.startswith(f"warning: {file}, line 11: api_key is a secret in the file")
    assert "sk-in-clear" not in done.stderr + done.stdout


def test_without_a_file_the_environment_is_looked_at(tmp_path: Path) -> None:
    assert "built-in reader" in run(tmp_path).stdout
    done = run(tmp_path, VLLM_CONCURRENCY="0")
    assert (done.returncode, "VLLM_CONCURRENCY" in done.stderr) == (1, True)


def test_one_upstream_without_rules_gets_everything(tmp_path: Path) -> None:
    requests = _requests(run(tmp_path, "--json", VLLM_BASE_URL="http://gpu:8000/v1"))
    assert {json.dumps(one["steps"]) for one in requests.values()} == {'[["gpu:8000"]]'}
    assert requests["no-such-model", "audio"]["reason"] == "only"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--config", "no.yaml"),
        ("--import", "no.yaml"),
        ("--out", "x.yaml"),
        ("--config", "dabom.yaml", "--import", "dabom.yaml"),
        ("--import", "dabom.yaml", "--out", "dabom.yaml"),
        ("--lang", "xx"),
        ("--zzz",),
    ],
)
def test_wrong_use_ends_with_2(file: Path, arguments: tuple[str, ...]) -> None:
    done = run(file.parent, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


def test_a_litellm_file_is_turned_and_can_be_checked(tmp_path: Path) -> None:
    seed = _ROOT / "tests" / "app" / "litellm" / "seed.yaml"
    done = run(tmp_path, "--import", str(seed), "--out", "ours.yaml")
    assert (done.returncode, done.stdout) == (0, "")
    assert "not carried over: " in done.stderr
    assert "routing_strategy" in done.stderr
    assert "sk-internal-gateway-key" not in done.stderr + (tmp_path / "ours.yaml").read_text(encoding="utf-8")
    checked = run(tmp_path, "--config", "ours.yaml", "--json", DABOM_API_KEY="sk-ours")
    assert _requests(checked)["vision-auto", "image"]["steps"] == [["qwen3-vl-30b"], ["qwen3-vl-8b"]]
    shown = run(tmp_path, "--import", str(seed))
    assert shown.stdout == (tmp_path / "ours.yaml").read_text(encoding="utf-8")
    assert json.loads(run(tmp_path, "--import", str(seed), "--json").stdout)["yaml"] == shown.stdout


def test_a_file_that_is_not_litellms_ends_with_1(file: Path) -> None:
    done = run(file.parent, "--import", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert "has no model_list" in done.stderr


def test_it_is_a_command_of_dabom(file: Path) -> None:
    command = [sys.executable, "-m", "dabom.cli", "check", "--config", str(file), "--json"]
    done = subprocess.run(command, cwd=file.parent, capture_output=True, timeout=50, check=True)
    assert json.loads(done.stdout)["ok"]
