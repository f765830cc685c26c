"""Every mistake in a file is told with its line, and with what was probably meant."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from dabom.app import load_settings, read_settings
from dabom.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.app.config.conftest import Write

_FLEET = """
    upstreams:
      - {name: a, url: 'http://a/v1'}
      - {name: b, url: 'http://b/v1'}
"""
# what is added to the fleet, the line of the mistake, and what is said of it
_MISTAKES = {
    "unknown name": ("concurency: 4", 4, "there is no setting concurency; did you mean concurrency?"),
    "unknown section": ("zzz: {}", 4, "docs/settings.md lists all names"),
    "wrong value": ("port: many", 4, "port: must be a whole number, not many"),
    "value of a section": ("limits:\n  max_batch_items: 0", 5, "max_batch_items: must be at least 1, not 0"),
    "name in a section": ("clocks:\n  idle_timeout: 3", 5, "did you mean idle_timeout_s?"),
    "section that is no table": ("clocks: 3", 4, "clocks must hold names and values"),
    "set twice": ("idle_timeout_s: 3\nclocks:\n  idle_timeout_s: 4", 6, "is set twice"),
    "name twice": ("port: 1\nhost: '::1'\nport: 2", 6, "port stands here again; it was set on line 4"),
    "unknown upstream": ("models:\n  m: c", 5, "no upstream, route or model is called c; the names are a, b"),
    "near upstream": (
        "routes:\n  long:\n    - a\n    - long-b\nmodels: {long-a: a}",
        7,
        "did you mean long-a?",
    ),
    "route with no step": ("routes:\n  r: []", 5, "routes.r.steps: must not be empty"),
    "route of a wrong kind": (
        "routes:\n  r: 3",
        5,
        "must be a table of names and values, not one value",
    ),
    "truth": ("early_stream: maybe", 4, "early_stream: must be true or false, not maybe"),
    "seconds": ("idle_timeout_s: 10m", 4, "idle_timeout_s: must be a number, not 10m"),
    "number for a text": ("host: 3", 4, "host: must be text; put quotes around it"),
    "list for a table": ("routes:\n  - r: [a]", 4, "routes: must be a table of names and values, not a list"),
    "text for a list": (
        "mask: resident_number",
        4,
        "mask: must be a list, such as [A, B], not text",
    ),
    "setting of another section": (
        "clocks:\n  port: 9000",
        5,
        "clocks has no port; there are acquire",
    ),
    "far name in a section": ("limits:\n  zzz: 1", 5, "limits has no zzz; there are max_body_bytes,"),
    "tag": ("host: !mine x", 4, "the tag !mine means nothing here; leave it out"),
    "tag of a list": ("routes: !!python/tuple [a]", 4, "the tag !!python/tuple means nothing here"),
    "route of auto": ("routes:\n  auto: [a]", 5, "auto is a name of the gateway's own"),
    "name in a route": (
        "routes:\n  r:\n    steps: [a]\n    max_pixel: 3",
        7,
        "did you mean max_pixels?",
    ),
    "circle of models": ("models:\n  m: n\n  n: m", 6, "m -> n -> m goes in a circle"),
    "circle of routes": ("routes:\n  r: [a, s]\n  s: [r]", 6, "r -> s -> r goes in a circle"),
    "route to itself": ("routes:\n  r:\n    - a\n    - r", 7, "r -> r goes in a circle"),
    "steps among replicas": (
        "routes:\n  r: [a, b]\n  s:\n    - [a, r]",
        7,
        "r has several steps; it cannot be one of several replicas",
    ),
    "unknown word of a rule": (
        "auto:\n  - image: a\n  - image fats: b",
        6,
        "auto knows no fats; did you mean fast?",
    ),
    "rule without a target": ("auto:\n  - image fast", 5, "a rule is modalities and tasks"),
    "rules without dashes": ("auto:\n  image: a", 4, "auto must be a list of rules"),
    "rule to nowhere": ("auto:\n  - image: a\n  - text: [a, d]", 6, "is called d"),
    "long rule to nowhere": ("auto:\n  - route: d\n    tasks: [fast]", 5, "is called d"),
    "wrong task": ("auto:\n  - route: a\n    tasks: [fats]", 6, "auto.0.tasks"),
    "default to nowhere": ("models: {m: a}\ndefault_route: d", 5, "is called d"),
    "name of auto": ("models:\n  m: a\n  auto-fast: a", 6, "auto-fast is a name of the gateway's own"),
    "list in a name": ("? [a, b]\n: 3", 4, "a name must be one word"),
    "exposed": ("port: 1\nhost: 0.0.0.0", 5, "there is no key; set DABOM_API_KEY"),
    "model and route": ("routes:\n  m: [a]\nmodels:\n  m: [a, b]", 7, "rename one of them"),
}
_UPSTREAMS = {
    "unknown name": ("- url: http://a/v1\n    nmae: b", 3, "did you mean name?"),
    "far name": ("- url: http://a/v1\n    zzz: b", 3, "there are url, name, concurrency"),
    "wrong kind": (
        "- url: http://a/v1\n    kind: vlm",
        3,
        "'vllm', 'llama_cpp', 'mlx', 'openai' or 'reader'",
    ),
    "wrong address": ("- name: a\n    url: gpu:8000", 3, "is no address such as http://HOST:PORT/v1"),
    "no address": ("- name: a\n    kind: vllm", 2, "an upstream needs a url"),
    "gguf elsewhere": ("- gguf: a.gguf\n    kind: vllm", 2, "gguf is served by kind llama_cpp, not by vllm"),
    "mmproj alone": ("- url: http://a/v1\n    mmproj: a.gguf", 2, "name that too"),
    "clock": ("- url: http://a/v1\n    clocks:\n      idle_timeout_s: 0", 4, "must be more than 0, not 0"),
    "near kind": ("- url: http://a/v1\n    kind: vlm", 3, "not vlm; did you mean vllm?"),
    "family": ("- url: http://a/v1\n    family: qwen3_lv", 3, "did you mean qwen3-vl?"),
    "far family": ("- url: http://a/v1\n    family: zzz", 3, "no family is called zzz; there are qwen2-vl, "),
    "name of a clock": ("- url: http://a/v1\n    clocks: {idle_s: 3}", 3, "did you mean idle_timeout_s?"),
    "twins": ("- {name: a, url: 'http://a/v1'}\n  - {name: a, url: 'http://b/v1'}", 3, "two upstreams"),
    "modality": ("- url: http://a/v1\n    modalities: [picture]", 3, "'text', 'image', 'video'"),
}


@pytest.mark.parametrize("name", _MISTAKES)
def test_a_mistake_is_told_with_its_line(write: Write, name: str) -> None:
    added, line, said = _MISTAKES[name]
    text = "\n".join(row.strip("\n").removeprefix("    ") for row in _FLEET.strip("\n").splitlines())
    file = write(f"{text}\n{added}\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    assert f"{file}, line {line}: " in caught.value.message
    assert said in caught.value.message


@pytest.mark.parametrize("name", _UPSTREAMS)
def test_a_mistake_in_an_upstream_is_told_with_its_line(write: Write, name: str) -> None:
    text, line, said = _UPSTREAMS[name]
    file = write(f"upstreams:\n  {text}\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    assert f"{file}, line {line}: " in caught.value.message
    assert said in caught.value.message


def test_all_mistakes_are_told_in_the_order_of_the_file(write: Write) -> None:
    file = write("""
        port: many
        concurency: 3
        upstreams:
          - url: http://a/v1
            nmae: b
    """)
    reading = read_settings(file)
    assert reading.settings is None
    assert [str(flaw).split(": ")[0] for flaw in reading.flaws] == [f"{file}, line {n}" for n in (1, 2, 5)]


def test_what_follows_from_a_mistake_is_not_told(write: Write) -> None:
    file = write("""
        host: ${NOWHERE}
        upstreams:
          - url: ${NOWHERE}
        clocks: {idle_timeout_s: "${NOWHERE}"}
        auto:
          - image fast
    """)
    assert [(flaw.line, "NOWHERE is not set" in flaw.message) for flaw in read_settings(file).flaws] == [
        (1, True),
        (3, True),
        (4, True),
        (6, False),
    ]


def test_a_circle_is_told_once(write: Write) -> None:
    file = write(
        "upstreams: [{name: a, url: 'http://a/v1'}]\nmodels: {m: n, n: m}\nroutes: {r: [s], s: [r]}\n"
    )
    assert [flaw.message for flaw in read_settings(file).flaws] == [
        "m -> n -> m goes in a circle",
        "r -> s -> r goes in a circle",
    ]


def test_references_are_looked_at_when_something_else_is_wrong_too(write: Write) -> None:
    file = write("upstreams: [{name: a, url: 'http://a/v1'}]\nport: many\nmodels: {m: b}\n")
    assert [flaw.line for flaw in read_settings(file).flaws] == [2, 3]


def test_a_section_with_nothing_in_it_is_left_out(write: Write) -> None:
    file = write(
        "upstreams: [{name: a, url: 'http://a/v1'}]\nmodels:\nroutes:\nauto:\nkeys:\nmedia:\nclocks:\n"
    )
    assert load_settings(file).keys == ()


@pytest.mark.parametrize("value", ["${SECRET}", "sk-${SECRET}"])
def test_what_a_variable_holds_is_not_shown(
    write: Write, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SECRET", "sk-secret")
    (flaw,) = read_settings(write(f"concurrency: {value}\n")).flaws
    assert flaw.message == "concurrency: must be a whole number"


@pytest.mark.parametrize(
    "text",
    ["keys: sk-secret", "keys: [sk-secret]", "keys: [{id: sk-secret, key: 1}]", "api_key: [sk-secret]"],
)
def test_a_key_at_a_wrong_place_is_not_shown(write: Write, text: str) -> None:
    flaws = read_settings(write(f"{text}\n")).flaws
    assert flaws
    assert "sk-secret" not in str([flaw.message for flaw in flaws])


def test_a_file_that_is_none_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for name, said in [
        (".", "it is a folder"),
        ("pipe", "it is no file that can be read twice"),
        ("no.yaml", "cannot be read: No such file or directory"),
    ]:
        with pytest.raises(ConfigError, match=said):
            load_settings(folder / name)


@pytest.mark.parametrize("text", ["", "\n \n", "\ufeff"])
def test_an_empty_file_is_a_mistake(write: Write, text: str) -> None:
    with pytest.raises(ConfigError, match="is empty"):
        load_settings(write(text))
    assert load_settings(write("# nothing yet\n")).upstreams == ()


def test_a_huge_file_is_refused_before_it_is_read(folder: Path, write: Write) -> None:
    file = write("port: 1\n")
    with file.open("r+b") as opened:
        opened.truncate(10_000_000)
    with pytest.raises(ConfigError, match="has 10,000,000 bytes; a configuration has at most 1,048,576"):
        load_settings(file)


def test_what_the_environment_says_is_on_no_line(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write("concurrency: 3\n")
    monkeypatch.setenv("VLLM_CONCURRENCY", "0")
    (flaw,) = read_settings(file).flaws
    assert flaw.line is None


def test_a_wrong_address_in_the_environment_is_not_laid_to_the_file(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write("base_url: http://a/v1\n")
    monkeypatch.setenv("VLLM_BASE_URL", "gpu:8000")
    (flaw,) = read_settings(file).flaws
    assert str(flaw) == "VLLM_BASE_URL is no address such as http://HOST:PORT/v1"


def test_anchors_and_merges_work_and_know_their_lines(write: Write) -> None:
    file = write("""
        upstreams:
          - &gpu
            name: a
            url: http://a/v1
            concurrency: 8
          - <<: *gpu
            name: b
          - <<: *gpu
            name: c
            concurrency: 2
    """)
    upstreams = load_settings(file).upstreams
    assert [(one.name, one.concurrency) for one in upstreams] == [("a", 8), ("b", 8), ("c", 2)]


@pytest.mark.parametrize(
    "text",
    [
        "a: &a {b: *a}\n",
        "a: &a\n  <<: *a\n",
        "a: &a [1,1,1,1,1,1,1,1,1]\n"
        + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(8)),
        "port: 2024-13-45\n",
        f"port: {'9' * 5000}\n",
        "port: !!python/object:os.system x\n",
        "? {a: b}\n: 3\n",
    ],
)
def test_a_file_that_breaks_parsers_is_told(write: Write, text: str) -> None:
    with pytest.raises(ConfigError):
        load_settings(write(text))
