"""Secrets come from variables and files; one that stands in the file works, and is warned of."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from dabom.app import load_settings, read_settings
from dabom.errors import ConfigError
from dabom.gateway import hash_line

if TYPE_CHECKING:
    from pathlib import Path

    from tests.app.config.conftest import Write

_UPSTREAM = "upstreams:\n  - url: http://a/v1\n    name: a\n    "


def _key(file: Path) -> str | None:
    (upstream,) = load_settings(file).upstreams
    return upstream.api_key.get_secret_value() if upstream.api_key else None


@pytest.mark.parametrize("line", ["api_key_env: VLLM_KEY", "api_key: ${VLLM_KEY}", "api_key: s${MIDDLE}t"])
def test_a_key_comes_from_the_environment(write: Write, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setenv("VLLM_KEY", "secret")
    monkeypatch.setenv("MIDDLE", "ecre")
    file = write(_UPSTREAM + line)
    assert _key(file) == "secret"
    assert read_settings(file).warnings == ()


def test_a_key_comes_from_the_env_file(write: Write, folder: Path) -> None:
    (folder / ".env").write_text("GPU_KEY=secret\n")
    assert _key(write(_UPSTREAM + "api_key_env: GPU_KEY")) == "secret"


def test_a_key_comes_from_a_file(write: Write, folder: Path) -> None:
    (folder / "key").write_text("secret\n")
    file = write(_UPSTREAM + "api_key_file: key")
    assert _key(file) == "secret"
    assert read_settings(file).warnings == ()


def test_the_gateways_own_keys_have_the_same_forms(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY", "secret")
    settings = load_settings(write("host: 0.0.0.0\napi_key_env: OUR_KEY\n"))
    assert settings.api_key is not None
    assert settings.api_key.get_secret_value() == "secret"


def test_a_key_in_the_file_works_and_is_warned_of(write: Write) -> None:
    file = write(_UPSTREAM + "api_key: secret-in-clear")
    assert _key(file) == "secret-in-clear"
    (warning,) = map(str, read_settings(file).warnings)
    assert warning.startswith(f"{file}, line 4: upstreams.0.api_key is a secret in the file")
    assert "api_key_env" in warning
    assert "secret-in-clear" not in warning


@pytest.mark.parametrize(
    ("lines", "line", "said"),
    [
        ("api_key_env: NOT_SET", 4, "NOT_SET is not set in the environment"),
        ("api_key: ${NOT_SET}", 4, "NOT_SET is not set in the environment"),
        ("api_key_file: /no/such/key", 4, "/no/such/key cannot be read: No such file or directory"),
        ("api_key_env: VLLM_KEY\n    api_key: x", 4, "api_key_env and api_key say the same"),
        ("api_key_env: [a]", 4, "must be the name of a variable"),
        ("api_key_file: 3", 4, "must be the path of a file"),
        ("concurrency_env: NUMBER", 4, "there is no such setting"),
    ],
)
def test_a_reference_that_leads_nowhere_is_told(write: Write, lines: str, line: int, said: str) -> None:
    file = write(_UPSTREAM + lines)
    flaws = [str(flaw) for flaw in read_settings(file).flaws]
    assert any(flaw.startswith(f"{file}, line {line}: ") and said in flaw for flaw in flaws), flaws


def test_a_secret_where_a_variable_is_named_is_not_told(write: Write) -> None:
    flaws = read_settings(write(_UPSTREAM + "api_key_env: sk-secret"))
    assert "sk-secret" not in str(flaws)
    assert "the variable that is named here is not set" in str(flaws)


def test_variables_stand_anywhere_and_two_dollars_are_one(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_HOST", "10.0.0.7")
    file = write("upstreams:\n  - url: http://${GPU_HOST}:8000/v1\n    name: $${NAME}\n")
    (upstream,) = load_settings(file).upstreams
    assert (upstream.url, upstream.name) == ("http://10.0.0.7:8000/v1", "${NAME}")


def test_a_log_file_is_no_reference(write: Write) -> None:
    assert str(load_settings(write("log_file: gateway.log\n")).log_file) == "gateway.log"


@pytest.mark.parametrize(
    ("database", "warned"),
    [("audit.db", False), ("postgresql://dabom@db/audit", False), ("postgresql://dabom:pw@db/audit", True)],
)
def test_a_database_is_a_secret_when_there_is_a_password_in_it(
    write: Write, database: str, warned: bool
) -> None:
    warnings = read_settings(write(f"audit: {{database: '{database}'}}\n")).warnings
    assert ["audit.database is a secret" in one.message for one in warnings] == [True] * warned


@pytest.mark.parametrize(
    ("url", "warned"),
    [("http://a/v1", False), ("http://a/openai/v1/", False), ("http://a", True), ("http://a/v1/chat", True)],
)
def test_an_address_that_hardly_any_server_has_is_warned_of(write: Write, url: str, warned: bool) -> None:
    warnings = read_settings(write(f"upstreams:\n  - {{name: a,\n     url: '{url}'}}\n")).warnings
    told = [(one.line, "url of a does not end in /v1" in one.message) for one in warnings]
    assert told == [(3, True)] * warned


def test_a_secret_is_no_pipe(write: Write, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (flaw,) = read_settings(write("api_key_file: pipe\n")).flaws
    assert flaw.message == "pipe cannot be read: it is no file"


@pytest.mark.parametrize("name", ["api_key", "admin_key"])
def test_the_hash_of_a_key_is_no_secret(write: Write, name: str) -> None:
    assert read_settings(write(f"{name}: {hash_line('dabom-0123456789-0123456789')}\n")).warnings == ()


@pytest.mark.parametrize(
    "lines",
    [
        "api_key: {key}\nadmin_key: {hash}\n",
        "keys:\n  - id: anna\n    hash: {hash}\nadmin_key: {key}\n",
        "keys:\n  - id: anna\n    hash: {hash}\napi_key: {hash}\n",
    ],
)
def test_no_key_is_two(write: Write, lines: str) -> None:
    """Whoever has a client's key must not be the admin, nor one client another."""
    key = "dabom-0123456789-0123456789"
    with pytest.raises(ConfigError, match="is the same key as") as raised:
        load_settings(write(lines.format(key=key, hash=hash_line(key))))
    assert key not in str(raised.value)
