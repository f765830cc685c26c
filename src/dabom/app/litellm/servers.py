"""One entry of LiteLLM's `model_list`, or one of its fallbacks, as an upstream of ours."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from dabom.app.litellm.reasons import PROTOCOLS
from dabom.gateway.settings import UpstreamSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from dabom.app.config.document import Place
    from dabom.gateway.settings import UpstreamKind

_KINDS: dict[str, UpstreamKind] = {"hosted_vllm": "vllm", "vllm": "vllm", "openai": "openai"}
_SPEAK_OPENAI = frozenset(
    {
        "azure_ai",
        "custom_openai",
        "databricks",
        "deepinfra",
        "deepseek",
        "fireworks_ai",
        "groq",
        "huggingface",
        "litellm_proxy",
        "llamafile",
        "lm_studio",
        "mistral",
        "nvidia_nim",
        "ollama",
        "ollama_chat",
        "openai_like",
        "openrouter",
        "text-completion-openai",
        "together_ai",
        "xai",
        "xinference",
    }
)
_OLLAMA = frozenset({"ollama", "ollama_chat"})
_ENVIRON = "os.environ/"
_PLACEHOLDERS = frozenset(
    {"", "dummy", "empty", "none", "no-key", "not-needed", "na", "n/a", "fake-key", "sk-no-key"}
)
_SEES_CLIPS = re.compile(r"(?i)(?<![a-z])(vl|omni)(?![a-z])")
_USED = (
    *("model", "custom_llm_provider", "api_base", "base_url", "api_key"),
    *("timeout", "stream_timeout", "max_parallel_requests"),
)
_SIGHTS = {
    "supports_vision": "image",
    "supports_video_input": "video",
    "supports_audio_input": "audio",
    "supports_pdf_input": "file",
}


@dataclass
class Servers:
    """Upstreams by name; the same address and model is the same upstream. `say` takes a place and a note."""

    drop: Callable[[Place, str], None]
    note: Callable[[Place, str], None]
    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, params: Any, wanted: str, place: Place) -> str | None:
        """The name of the upstream that `litellm_params` describe; None when there can be none.

        What is used is taken out of `params`: the rest is for the caller to tell.
        """
        if not isinstance(params, dict):
            self.drop(place, "it is no table of settings")
            return None
        taken = {name: params.pop(name) for name in _USED if name in params}
        provider, model = _split(taken.get("model"), taken.get("custom_llm_provider"))
        url = self._url(taken, provider, place)
        if url is None:
            return None
        if provider is None and "/" in model:
            told = f"{model.partition('/')[0]} is no provider that is known; the whole is taken for the name"
            self.note((*place, "model"), told)
        kind = _KINDS.get(provider or "openai")
        if kind is None:
            self.note(
                (*place, "model"), f"{provider} is taken for OpenAI-compatible; set `kind` if it is not"
            )
        upstream: dict[str, Any] = {"url": url, "kind": kind or "openai"}
        if model:
            upstream["model"] = model
        if key := self._key(taken.get("api_key"), wanted, place):
            upstream["api_key_env"] = key
        if isinstance(most := taken.get("max_parallel_requests"), int):
            upstream["concurrency"] = most
        if clocks := self.clocks(taken.get("timeout"), taken.get("stream_timeout"), place):
            upstream["clocks"] = clocks
        return self._keep(upstream, wanted, place)

    def _url(self, taken: dict[str, Any], provider: str | None, place: Place) -> str | None:
        name = "api_base" if taken.get("api_base") else "base_url"
        url = taken.get(name)
        if provider in PROTOCOLS or not isinstance(url, str) or not url:
            why = "speaks a protocol of its own" if provider in PROTOCOLS else "has no api_base"
            self.drop(place, f"{provider or 'it'} {why}; add an OpenAI-compatible upstream by hand")
            return None
        url = _reference(url).rstrip("/")
        if provider in _OLLAMA and not url.endswith("/v1"):  # LiteLLM speaks ollama's own protocol there
            url += "/v1"
        if variable(taken[name]) is None:
            try:
                UpstreamSettings(url=url)
            except ValidationError:  # its text may hold a password
                self.drop((*place, name), "it is no address such as http://HOST:PORT/v1 without a password")
                return None
        return url

    def see(self, name: str, info: dict[str, Any]) -> None:
        """Take over what `model_info` says that a model can take, else what its name says."""
        said = {sight: info.pop(sight) for sight in _SIGHTS if sight in info}
        upstream = self.found[name]
        if isinstance(most := info.pop("max_input_tokens", None), int):
            upstream.setdefault("max_model_len", most)
        if said:
            upstream["modalities"] = [_SIGHTS[sight] for sight, able in said.items() if able]
        elif named := _SEES_CLIPS.search(str(upstream.get("model", name))):
            sound = ["audio"] if named[1].lower() == "omni" else []
            upstream.setdefault("modalities", ["image", "video", *sound])

    def clocks(self, whole: Any, stream: Any, place: Place) -> dict[str, float]:
        """Ours for `timeout` and `stream_timeout`, in seconds.

        Theirs hold for answers that are not streamed and for streams. Ours have one total, and a first byte,
        which an answer that is not streamed sends at its end.
        """
        whole_s, stream_s = (
            self._seconds(whole, (*place, "timeout")),
            self._seconds(stream, (*place, "stream_timeout")),
        )
        if whole_s is None or stream_s is None:
            only = whole_s if stream_s is None else stream_s
            return {} if only is None else {"total_timeout_s": only}
        if stream_s > whole_s:
            return {"first_byte_timeout_s": whole_s, "total_timeout_s": stream_s}
        if stream_s < whole_s:
            self.note((*place, "stream_timeout"), f"{stream_s:g} s became the longest silence in an answer")
            return {"idle_timeout_s": stream_s, "total_timeout_s": whole_s}
        return {"total_timeout_s": whole_s}

    def _seconds(self, value: Any, place: Place) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            self.drop(place, "it is no number of seconds")
            return None
        return value

    def _key(self, value: Any, wanted: str, place: Place) -> str | None:
        """The variable that holds the key; a key in clear is never copied."""
        if not isinstance(value, str) or value.lower() in _PLACEHOLDERS:
            return None
        if value.startswith(_ENVIRON):
            return value.removeprefix(_ENVIRON)
        name = re.sub(r"[^A-Z0-9]+", "_", wanted.upper()).strip("_") + "_API_KEY"
        name = name if name[0].isalpha() else f"UPSTREAM_{name}"
        self.note((*place, "api_key"), f"the key stands there in clear and is not copied; put it into {name}")
        return name

    def _keep(self, upstream: dict[str, Any], wanted: str, place: Place) -> str:
        for name, other in self.found.items():
            if (other["url"], other.get("model")) == (upstream["url"], upstream.get("model")):
                if "clocks" in upstream and upstream["clocks"] != other.get("clocks", {}):
                    told = f"its times differ from those of {name}, the same server, which hold"
                    self.note(place, told)
                return name
        name, number = wanted, 1
        while name in self.found:
            number += 1
            name = f"{wanted}-{number}"
        self.found[name] = {"name": name, **upstream}
        return name

    def checked(self) -> list[dict[str, Any]]:
        """All upstreams, in the order in which a person would write them."""
        order = [name for name in UpstreamSettings.model_fields if name != "name"]
        return [
            {key: one[key] for key in ("name", *_with_references(order)) if key in one}
            for one in self.found.values()
        ]


def variable(value: str) -> str | None:
    """The name in `os.environ/NAME`."""
    return value.removeprefix(_ENVIRON) if value.startswith(_ENVIRON) else None


def _with_references(order: list[str]) -> list[str]:
    return [name for one in order for name in ((one, "api_key_env") if one == "api_key" else (one,))]


def _split(model: Any, given: Any = None) -> tuple[str | None, str]:
    """Provider and model: `openai/Qwen/Qwen3-VL-8B` is Qwen's model at an OpenAI-compatible server."""
    if not isinstance(model, str):
        return None, ""
    if isinstance(given, str):
        return given, model.removeprefix(f"{given}/")
    provider, slash, name = model.partition("/")
    known = bool(slash) and (provider in _KINDS or provider in PROTOCOLS or provider in _SPEAK_OPENAI)
    return (provider, name) if known else (None, model)


def _reference(text: str) -> str:
    name = variable(text)
    return text if name is None else f"${{{name}}}"
