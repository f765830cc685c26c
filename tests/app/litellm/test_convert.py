"""LiteLLM files turned into ours: the one of the fleet of seven, and every corner of the format."""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from dabom.app import load_settings
from dabom.app.litellm import Conversion, convert
from dabom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = Path(__file__).parent / "seed.yaml"


@pytest.fixture(autouse=True)
def folder(plain_environment: Path) -> Path:
    return plain_environment


def _convert(folder: Path, text: str) -> tuple[dict[str, Any], Conversion]:
    file = folder / "litellm.yaml"
    file.write_text(text, encoding="utf-8")
    made = convert(file)
    return yaml.safe_load(made.text), made


def _model(name: str, **params: Any) -> dict[str, Any]:
    given = {"model": f"openai/{name}", "api_base": f"http://{name}:8000/v1"} | params
    return {"model_name": name, "litellm_params": given}


def _written(folder: Path, *models: dict[str, Any], **sections: Any) -> tuple[dict[str, Any], Conversion]:
    return _convert(folder, yaml.safe_dump({"model_list": list(models), **sections}))


def test_the_fleet_of_the_seed_is_carried_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = convert(SEED)
    monkeypatch.setenv("DABOM_API_KEY", "sk-ours")
    file = folder / "dabom.yaml"
    file.write_text(made.text, encoding="utf-8")
    settings = load_settings(file)
    gateway = settings.gateway()
    assert [(one.name, one.url, one.model) for one in gateway.upstreams] == [
        ("qwen3-30b", "http://cuda-node:8100/v1", "qwen3-30b"),
        ("qwen3-14b-mlx", "http://mac-studio:8000/v1", "qwen3-14b-mlx"),
        ("qwen3-vl-30b", "http://cuda-node:8200/v1", "qwen3-vl-30b"),
        ("qwen3-vl-8b", "http://cuda-node:8201/v1", "qwen3-vl-8b"),
    ]
    large, small = gateway.upstreams[2].clocks, gateway.upstreams[3].clocks
    assert large is not None
    assert small is not None
    assert (large.first_byte_timeout_s, large.total_timeout_s) == (120, 180)
    assert (small.first_byte_timeout_s, small.total_timeout_s) == (None, 60)
    assert {one.api_key for one in gateway.upstreams} == {None}
    assert gateway.api_key is not None
    assert gateway.api_key.get_secret_value() == "sk-ours"
    assert set(gateway.routing.models) == {
        "qwen3-30b",
        "qwen3-14b-mlx",
        "qwen3-vl-30b",
        "qwen3-vl-8b",
        "vision-auto",
    }
    assert gateway.routing.routes["vision-auto"].steps == (("qwen3-vl-30b",), ("qwen3-vl-8b",))
    assert gateway.upstreams[2].modalities == frozenset({"image", "video"})


def test_what_the_seed_says_and_we_do_not_is_listed_with_its_line() -> None:
    made = convert(SEED)
    assert [line.split(": ")[1] for line in made.dropped] == [
        "router_settings.routing_strategy",
        "router_settings.enable_tag_filtering",
    ]
    assert made.dropped[0].startswith(f"{SEED}, line 41: ")
    assert "least tokens in flight" in made.dropped[0]


def test_no_secret_is_copied(folder: Path) -> None:
    models = [
        _model("a", api_key="sk-in-clear"),
        _model("b", fallbacks=[{"model": "x", "api_key": "sk-in-clear"}]),
    ]
    values, made = _written(
        folder,
        *models,
        general_settings={"master_key": "sk-in-clear", "database_url": "postgres://u:sk-in-clear@h/d"},
        environment_variables={"X": "sk-in-clear"},
        router_settings={"redis_password": "sk-in-clear"},
    )
    assert "sk-in-clear" not in made.text + str(made.dropped) + str(made.notes)
    assert values["upstreams"][0]["api_key_env"] == "A_API_KEY"
    assert values["api_key_env"] == "DABOM_API_KEY"
    assert any("put it into A_API_KEY" in note for note in made.notes)


def test_references_to_the_environment_stay_references(folder: Path) -> None:
    values, made = _written(
        folder,
        _model("a", api_key="os.environ/GPU_KEY", api_base="os.environ/GPU_URL"),
        general_settings={"master_key": "os.environ/MASTER"},
    )
    (upstream,) = values["upstreams"]
    assert (upstream["api_key_env"], upstream["url"]) == ("GPU_KEY", "${GPU_URL}")
    assert values["api_key_env"] == "MASTER"
    assert not [note for note in made.notes if "in clear" in note]


def test_fallbacks_are_read_in_all_places(folder: Path) -> None:
    models = [_model("a", fallbacks=["b"]), _model("b"), _model("c"), _model("d"), _model("e")]
    values, _ = _written(
        folder,
        *models,
        router_settings={"fallbacks": [{"b": ["c"]}], "context_window_fallbacks": [{"c": ["d"]}]},
        litellm_settings={
            "fallbacks": [{"d": ["a", "d"]}, {"a": ["c", "nobody"]}],
            "default_fallbacks": ["e"],
        },
    )
    assert values["models"] == {
        "a": ["a", "b", "c", "e", "d"],  # its own, and those of each that follows
        "b": ["b", "c", "e", "d", "a"],
        "c": ["c", "e", "d", "a", "b"],  # none of its own: the default ones, then the one with more room
        "d": ["d", "a", "b", "c", "e"],
        "e": "e",
    }


def test_fallbacks_of_all_models_are_for_those_without_their_own(folder: Path) -> None:
    models = [_model("a"), _model("b"), _model("c"), _model("d")]
    values, _ = _written(folder, *models, litellm_settings={"fallbacks": [{"*": ["d"]}, {"a": ["b"]}]})
    assert values["models"] == {"a": ["a", "b", "d"], "b": ["b", "d"], "c": ["c", "d"], "d": "d"}
    both = {"fallbacks": [{"*": ["d"]}], "default_fallbacks": ["c"]}
    values, _ = _written(folder, *models, litellm_settings=both)
    assert values["models"]["a"] == ["a", "c"]


def test_fallbacks_for_long_contexts_are_noted(folder: Path) -> None:
    settings = {"context_window_fallbacks": [{"a": ["b"]}]}
    values, made = _written(folder, _model("a"), _model("b"), litellm_settings=settings)
    assert values["models"] == {"a": ["a", "b"], "b": "b"}
    assert any("context_window_fallbacks: " in note and "other faults" in note for note in made.notes)


def test_the_timeout_of_the_router_wins(folder: Path) -> None:
    settings = {"router_settings": {"timeout": 30}, "litellm_settings": {"request_timeout": 10}}
    values, _ = _written(folder, _model("a"), **settings)
    assert values["clocks"] == {"total_timeout_s": 30}


def test_the_file_is_one_that_a_person_would_write(folder: Path) -> None:
    twin = {"model_name": "a", "litellm_params": {"model": "openai/a", "api_base": "http://second/v1"}}
    fallbacks = [{"b": ["a"]}, {"c": ["a"]}]
    _, made = _written(
        folder, _model("a"), twin, _model("b"), _model("c"), router_settings={"fallbacks": fallbacks}
    )
    assert "&" not in made.text
    assert "*" not in made.text


@pytest.mark.parametrize(
    ("params", "url", "model"),
    [
        ({"model": "ollama/llama3", "api_base": "http://o:11434/"}, "http://o:11434/v1", "llama3"),
        ({"model": "ollama_chat/llama3", "api_base": "os.environ/OLLAMA"}, "${OLLAMA}/v1", "llama3"),
        ({"model": "ollama/llama3", "api_base": "http://o:11434/v1"}, "http://o:11434/v1", "llama3"),
        ({"model": "Qwen/Qwen3", "custom_llm_provider": "openai"}, "http://a:8000/v1", "Qwen/Qwen3"),
        ({"model": "huggingface/org/m"}, "http://a:8000/v1", "org/m"),
    ],
)
def test_servers_that_are_named_otherwise_there(
    folder: Path, params: dict[str, Any], url: str, model: str
) -> None:
    values, made = _written(folder, _model("a", **params))
    assert [(one["url"], one["model"]) for one in values["upstreams"]] == [(url, model)]
    assert made.dropped == []


def test_a_provider_that_is_not_known_is_noted(folder: Path) -> None:
    values, made = _written(folder, _model("a", model="newcomer/m"))
    assert values["upstreams"][0]["model"] == "newcomer/m"
    assert any("newcomer is no provider that is known" in note for note in made.notes)


def test_what_ours_could_not_read_is_left_out_with_its_line(folder: Path) -> None:
    text = """
model_list:
  - model_name: auto
    litellm_params: {model: openai/x, api_base: 'http://x/v1'}
  - model_name: a
    litellm_params:
      model: openai/x
      api_base: gpu:8000/v1
  - model_name: b
    litellm_params: {model: openai/x, api_base: 'http://u:sk-in-clear@x/v1'}
  - model_name: c
    litellm_params: {model: openai/x, api_base: 'http://x/v1', fallbacks: [{model: openai/y, api_base: y}]}
"""
    values, made = _convert(folder, text)
    assert list(values["models"]) == ["c"]
    assert [line.split(", ")[1].split(": ")[0] for line in made.dropped] == [
        "line 3",
        "line 8",
        "line 10",
        "line 12",
    ]
    assert "sk-in-clear" not in str(made)


def test_a_file_of_which_nothing_is_left_is_told(folder: Path) -> None:
    values, made = _written(folder, _model("a", model="bedrock/claude"))
    assert values["upstreams"] == []
    assert any("no model of it could be carried over" in note for note in made.notes)


def test_one_name_with_several_servers_is_replicas(folder: Path) -> None:
    more = {"model_name": "a", "litellm_params": {"model": "openai/a", "api_base": "http://second/v1"}}
    values, _ = _written(
        folder, _model("a"), more, _model("b", fallbacks=["a"]), router_settings={"fallbacks": [{"a": ["b"]}]}
    )
    assert [one["name"] for one in values["upstreams"]] == ["a", "a-2", "b"]
    assert values["models"] == {"a": [["a", "a-2"], "b"], "b": ["b", ["a", "a-2"]]}


def test_aliases_become_models(folder: Path) -> None:
    values, made = _written(
        folder,
        _model("a"),
        router_settings={"model_group_alias": {"gpt-4o": "a", "hidden": {"model": "a", "hidden": True}}},
        litellm_settings={"model_alias_map": {"old": "a", "lost": "nobody"}},
    )
    assert values["models"] == {"a": "a", "gpt-4o": "a", "hidden": "a", "old": "a"}
    assert any("the alias lost means nobody" in note for note in made.notes)


@pytest.mark.parametrize(
    ("given", "clocks"),
    [
        ({"timeout": 60}, {"total_timeout_s": 60}),
        ({"stream_timeout": 60}, {"total_timeout_s": 60}),
        ({"timeout": 120, "stream_timeout": 180}, {"first_byte_timeout_s": 120, "total_timeout_s": 180}),
        ({"timeout": 600, "stream_timeout": 30}, {"idle_timeout_s": 30, "total_timeout_s": 600}),
        ({"timeout": "soon"}, None),
    ],
)
def test_both_timeouts_become_clocks(folder: Path, given: dict[str, Any], clocks: Any) -> None:
    values, _ = _written(folder, _model("a", **given))
    assert values["upstreams"][0].get("clocks") == clocks
    values, _ = _written(folder, _model("a"), router_settings=given)
    assert values.get("clocks") == clocks


def test_limits_and_facts_are_carried_over(folder: Path) -> None:
    entry = _model("a", max_parallel_requests=3, model="hosted_vllm/Qwen/Qwen3-8B")
    entry["model_info"] = {"supports_vision": True, "supports_audio_input": False, "max_input_tokens": 9000}
    values, made = _written(
        folder, entry, litellm_settings={"request_timeout": 7}, general_settings={"max_request_size_mb": 50}
    )
    (upstream,) = values["upstreams"]
    assert (upstream["concurrency"], upstream["kind"]) == (3, "vllm")
    assert (upstream["model"], upstream["modalities"]) == ("Qwen/Qwen3-8B", ["image"])
    assert upstream["max_model_len"] == 9000
    assert (values["clocks"], values["limits"]) == ({"total_timeout_s": 7}, {"max_body_bytes": 50 * 2**20})
    assert made.dropped == []


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"model": "anthropic/claude", "api_base": None}, "anthropic speaks a protocol of its own"),
        ({"model": "azure/x", "api_base": None}, "azure speaks a protocol of its own"),
        ({"model": "azure/x"}, "azure speaks a protocol of its own"),
        ({"model": "openai/gpt", "api_base": None}, "openai has no api_base"),
        ({"weight": 2}, "not by weight"),
        ({"rpm": 5}, "limits belong to keys"),
        ({"temperature": 0.2}, "passes byte for byte"),
        ({"zzz": 1}, "Dabom has nothing of this name"),
    ],
)
def test_what_cannot_be_carried_over_is_told(folder: Path, params: dict[str, Any], why: str) -> None:
    _, made = _written(folder, _model("a", **params), _model("kept"))
    assert any("line " in line and why in line for line in made.dropped), made.dropped


def test_names_with_stars_are_told(folder: Path) -> None:
    values, made = _written(folder, _model("openai/*"), _model("a"))
    assert list(values["models"]) == ["a"]
    assert "list the models one by one" in made.dropped[0]


@pytest.mark.parametrize("text", ["a: 1\n", "model_list: 3\n", "- a\n", "model_list: [\n"])
def test_another_file_is_refused(folder: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        _convert(folder, text)


_WHOLE = """
model_list:
  - model_name: a
    litellm_params:
      {model: openai/a, api_base: 'http://a/v1', api_key: k, timeout: 3, stream_timeout: 4, base_url: 'http://b',
       custom_llm_provider: openai, max_parallel_requests: 2, fallbacks: [b, {model: openai/c, api_base: 'http://c'}]}
    model_info: {supports_vision: true, max_input_tokens: 9, mode: chat}
  - {model_name: b, litellm_params: {model: ollama/b, api_base: os.environ/B}}
router_settings:
  fallbacks: [{a: [b]}, {'*': [a]}]
  model_group_alias: {x: a, y: {model: b}}
  timeout: 3
litellm_settings:
  {context_window_fallbacks: [{a: [b]}], default_fallbacks: [b], request_timeout: 2, model_alias_map: {z: a}}
general_settings: {master_key: os.environ/K, max_request_size_mb: 3}
"""


def _replaced(value: Any, odd: Any) -> Iterator[Any]:
    """The value with one of its parts replaced, each in its turn."""
    yield odd
    places = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for at, part in list(places):
        for changed in _replaced(part, odd):
            other = copy.copy(value)
            other[at] = changed
            yield other


@pytest.mark.parametrize("odd", [None, 3, "text", [], ["a", 3, None], {}, {"a": None}, {3: {"model": []}}])
def test_no_mistake_in_their_file_is_one_of_ours(folder: Path, odd: Any) -> None:
    converted = 0
    for changed in _replaced(yaml.safe_load(_WHOLE), odd):
        with contextlib.suppress(ConfigError):
            found, _ = _convert(folder, yaml.safe_dump(changed))
            assert isinstance(found["upstreams"], list)
            converted += 1
    assert converted  # most of a file can be odd without the rest being lost
