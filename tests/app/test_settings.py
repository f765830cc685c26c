"""Where settings come from, which wins, and what is said of wrong ones."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

from dabom.app import Settings, load_settings
from dabom.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.app.conftest import Serve

_SEED = {
    "VLLM_BASE_URL": ("base_url", "http://gpu:8000/v1", "http://gpu:8000/v1"),
    "VLLM_CONCURRENCY": ("concurrency", "7", 7),
    "MAX_BATCH_ITEMS": ("max_batch_items", "9", 9),
    "VLLM_TIMEOUT_SECONDS": ("total_timeout_s", "61", 61.0),
    "VLLM_ACQUIRE_TIMEOUT_SECONDS": ("acquire_timeout_s", "62.5", 62.5),
}
_WRONG = {
    "VLLM_CONCURRENCY": ("0", "many", "-1", "1.5"),
    "MAX_BATCH_ITEMS": ("0", "x"),
    "VLLM_TIMEOUT_SECONDS": ("0", "-5", "soon"),
    "VLLM_BASE_URL": ("gpu:8000", "ftp://gpu/v1", "http://gpu/v1?key=1", "http://gpu /v1"),
    "DABOM_PORT": ("70000", "-1", "http"),
    "DABOM_MAX_BODY_BYTES": ("10", "64MB"),
    "DABOM_DRAIN_TIMEOUT_S": ("-1",),
    "DABOM_EARLY_STREAM": ("maybe",),
    "DABOM_UPSTREAMS": ('[{"url": "http://a/v1", "nmae": "x"}]', "[{}]", "nope"),
}


@pytest.fixture(autouse=True)
def folder(plain_environment: Path) -> Path:
    """An empty folder, and no settings from outside."""
    return plain_environment


def _write(folder: Path, text: str) -> Path:
    file = folder / "dabom.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_defaults_are_those_of_the_seed() -> None:
    settings = load_settings()
    assert (settings.host, settings.port, settings.concurrency) == ("127.0.0.1", 8001, 4)
    assert (settings.max_batch_items, settings.total_timeout_s, settings.acquire_timeout_s) == (128, 600, 300)
    assert (settings.max_body_bytes, settings.max_batch_bytes) == (64 * 2**20, 512 * 2**20)
    assert settings.needs_reader
    assert settings.api_key is None


@pytest.mark.parametrize("name", sorted(_SEED))
def test_the_names_of_the_seed_work(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    field, text, value = _SEED[name]
    monkeypatch.setenv(name, text)
    assert getattr(load_settings(), field) == value


@pytest.mark.parametrize("name", sorted(_SEED))
def test_the_names_of_the_seed_have_a_second_form(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    field, text, value = _SEED[name]
    monkeypatch.setenv(f"DABOM_{field.upper()}", text)
    assert getattr(load_settings(), field) == value


_PLAIN = sorted(
    name for name, field in Settings.model_fields.items() if not isinstance(field.default, BaseModel)
)


@pytest.mark.parametrize("field", _PLAIN)
def test_every_setting_has_a_name_in_the_environment(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    given = {
        "host": "::1",
        "base_url": "http://b/v1",
        "upstreams": '[{"url": "http://a/v1"}]',
        "log_file": "/tmp/x",  # noqa: S108 - a name only
        "whisper_model": "/models/whisper",
        "early_stream": "true",
        "forward_authorization": "yes",
        "models": '{"m": "a"}',
        "routes": '{"r": {"steps": [["a"]]}}',
        "auto": '[{"route": "a"}]',
        "default_route": "a",
        "mask": '["resident_number"]',
        "keys": json.dumps([{"id": "k", "hash": f"sha256:{'0' * 64}"}]),
    }
    monkeypatch.setenv("DABOM_UPSTREAMS", '[{"url": "http://a/v1", "name": "a"}]')
    monkeypatch.setenv(f"DABOM_{field.upper()}", given.get(field, "2048"))
    assert getattr(load_settings(), field) != Settings.model_fields[field].default


def test_the_gateway_gets_the_upstream_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BASE_URL", "http://gpu:8000/v1")
    monkeypatch.setenv("VLLM_API_KEY", "sk-secret")
    settings = load_settings()
    (upstream,) = settings.gateway().upstreams
    assert upstream.url == "http://gpu:8000/v1"
    assert upstream.api_key is not None
    assert upstream.api_key.get_secret_value() == "sk-secret"
    assert "sk-secret" not in repr(settings) + repr(settings.gateway())
    assert not settings.needs_reader


def test_several_upstreams_come_from_a_file(folder: Path) -> None:
    file = _write(
        folder,
        "concurrency: 2\nupstreams:\n"
        "  - url: http://a:1/v1\n    name: a\n  - url: http://b:1/v1\n    concurrency: 8\n",
    )
    settings = load_settings(file)
    assert [(u.name, u.url, u.concurrency) for u in settings.gateway().upstreams] == [
        ("a", "http://a:1/v1", None),
        ("", "http://b:1/v1", 8),
    ]
    assert settings.gateway().concurrency == 2


def test_the_environment_wins_over_a_file_and_an_option_over_both(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _write(
        folder, "port: 1\nconcurrency: 1\nacquire_timeout_s: 1\ndrain_notice_s: 1\nmax_batch_items: 1\n"
    )
    (folder / ".env").write_text(
        "DABOM_PORT=2\nVLLM_CONCURRENCY=2\nDABOM_ACQUIRE_TIMEOUT_S=2\nMAX_BATCH_ITEMS=2\n"
    )
    monkeypatch.setenv("DABOM_PORT", "3")
    monkeypatch.setenv("VLLM_CONCURRENCY", "3")
    monkeypatch.setenv("VLLM_ACQUIRE_TIMEOUT_SECONDS", "3")
    settings = load_settings(file, port=4)
    assert settings.port == 4
    assert settings.concurrency == 3
    assert settings.acquire_timeout_s == 3
    assert settings.max_batch_items == 2
    assert settings.drain_notice_s == 1


def test_an_option_that_is_not_given_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DABOM_PORT", "3")
    assert load_settings(None, host=None, port=None).port == 3


def test_an_empty_name_in_the_environment_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_BASE_URL", "")
    monkeypatch.setenv("VLLM_CONCURRENCY", "")
    assert load_settings().needs_reader
    assert load_settings().concurrency == 4


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in _WRONG.items() for text in texts])
def test_a_wrong_value_is_told_with_its_name(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    field = _SEED[name][0] if name in _SEED else name.removeprefix("DABOM_").lower()
    message = caught.value.message.lower()
    assert name.lower() in message or field in message or "upstreams" in message or "url" in message
    assert "\n" not in caught.value.message


def test_a_wrong_value_in_a_file_is_told(folder: Path) -> None:
    with pytest.raises(ConfigError, match="concurrency"):
        load_settings(_write(folder, "concurrency: many\n"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("concurency: 4\n", "did you mean concurrency"),
        ("max_batch_item: 4\n", "did you mean max_batch_items"),
        ("zzz: 4\n", "docs/settings.md"),
        ("1: 4\n", "no setting 1"),
        ("- a\n- b\n", "names and values"),
        ("hello\n", "names and values"),
        ("port: 1\n  bad: [\n", "line 2"),
        ("port: 1\nhost: 'a\n", "line"),
        ("upstreams:\n  - url: http://a/v1\n    nmae: b\n", "nmae"),
        ("\x00", "not YAML"),
    ],
)
def test_a_wrong_file_is_told_with_a_hint(folder: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_settings(_write(folder, text))


def test_an_empty_file_is_no_mistake(folder: Path) -> None:
    assert load_settings(_write(folder, "# nothing yet\n")).port == 8001


def test_a_file_that_is_not_there_is_told(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.yaml"):
        load_settings(folder / "no.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(folder)
    (folder / "latin.yaml").write_bytes(b"host: \xff\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(folder / "latin.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "api_key: sk-secret: x\n",
        "api_key: [sk-secret\n",
        "api_key: {a: sk-secret}\n",
        "upstream_api_key: [sk-secret]\n",
        "upstreams: [{url: http://a/v1, api_key: [sk-secret]}]\n",
        "api_key: 'sk-secret\n",
    ],
)
def test_a_secret_in_a_wrong_file_is_not_told(folder: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(_write(folder, text))
    assert "sk-secret" not in caught.value.message


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.10", "gateway.example"])  # noqa: S104
def test_an_address_that_others_reach_needs_a_key(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("DABOM_HOST", host)
    with pytest.raises(ConfigError, match="DABOM_API_KEY"):
        load_settings()
    monkeypatch.setenv("DABOM_API_KEY", "sk-secret")
    assert load_settings().host == host


@pytest.mark.parametrize("key", ["''", "'  '", r'"a\r\nx-evil: 1"', r'"a\0b"'])
@pytest.mark.parametrize("name", ["api_key", "upstream_api_key"])
def test_a_key_that_no_header_can_carry_is_refused(folder: Path, name: str, key: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: the key"):
        load_settings(_write(folder, f"host: 0.0.0.0\n{name}: {key}\n"))


def test_bytes_that_are_no_text_are_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DABOM_API_KEY", os.fsdecode(b"sk-secret\xff"))
    with pytest.raises(ConfigError, match="the key") as caught:
        load_settings()
    assert "sk-secret" not in caught.value.message


def test_the_line_break_behind_a_key_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DABOM_API_KEY", "sk-secret\n")
    key = load_settings().api_key
    assert key is not None
    assert key.get_secret_value() == "sk-secret"


@pytest.mark.parametrize(
    "url",
    ["http://[::1/v1", "http:///v1", "http://a:99999/v1", "http://a:x/v1", "http://user:sk-secret@a/v1"],
)
def test_a_url_that_cannot_be_used_is_told(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("VLLM_BASE_URL", url)
    with pytest.raises(ConfigError, match="url: the URL") as caught:
        load_settings()
    assert "sk-secret" not in caught.value.message


def test_files_that_break_their_parser_are_told(folder: Path) -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        load_settings(_write(folder, "a: " + "[" * 5000))
    (folder / ".env").write_bytes(b"A=\xff\n")
    with pytest.raises(ConfigError, match=r"\.env cannot be read"):
        load_settings()


def test_a_clock_that_never_rings_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="acquire_timeout_s"):
        load_settings(_write(folder, "acquire_timeout_s: .inf\n"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_none(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("DABOM_HOST", host)
    assert load_settings().host == host


def test_two_upstreams_of_one_name_are_refused(folder: Path) -> None:
    twice = "upstreams:\n  - {url: 'http://a/v1', name: a}\n  - {url: 'http://b/v1', name: a}\n"
    with pytest.raises(ConfigError, match="two upstreams are called a"):
        load_settings(_write(folder, twice))
    same = "upstreams:\n  - {url: 'http://a/v1'}\n  - {url: 'http://a/v1/'}\n"
    with pytest.raises(ConfigError, match="two upstreams"):
        load_settings(_write(folder, same))


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_settings().port = 1  # type: ignore[misc]


async def _expect_refusal(serve: Serve, said: bytes, *arguments: str, **settings: object) -> None:
    async with serve(*arguments, wait=False, **settings) as served:
        assert await served.ended(30) == 2
        assert said in served.stderr
        assert served.stderr.startswith("설정이 맞지 않습니다: ".encode()) or served.stderr.startswith(
            b"a setting is wrong: "
        )
        assert served.stderr.count(b"\n") == 1
        assert b"Traceback" not in served.stderr


async def test_the_command_ends_with_2_and_one_line(serve: Serve, folder: Path) -> None:
    await _expect_refusal(serve, b"concurrency", "--config", str(_write(folder, "concurency: 1\n")))
    await _expect_refusal(serve, b"DABOM_API_KEY", "--host", "0.0.0.0")  # noqa: S104


async def test_a_port_in_use_ends_the_command_with_2_and_one_line(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        await _expect_refusal(
            serve,
            b"cannot listen on 127.0.0.1:%d: address already in use" % port,
            "--port",
            str(port),
            VLLM_BASE_URL="http://127.0.0.1:9/v1",
        )


async def test_a_port_in_use_is_told_when_a_reader_has_been_started_too(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        await _expect_refusal(
            serve, b"cannot listen on 127.0.0.1:%d: address already in use" % port, "--port", str(port)
        )


async def test_a_log_file_that_cannot_be_opened_ends_the_command_with_2(serve: Serve, folder: Path) -> None:
    await _expect_refusal(
        serve, b"log_file", VLLM_BASE_URL="http://127.0.0.1:9/v1", DABOM_LOG_FILE=folder / "no" / "log"
    )
