"""Which children some settings ask for, and the settings with their addresses."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dabom.app.local.child import Child
from dabom.app.settings import GGUF_CONTEXT_TOKENS, gguf_name
from dabom.gateway import UpstreamSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dabom.app.settings import Settings
    from dabom.gateway import GatewaySettings

_LOAD_WITHIN_S = 600
"""A large GGUF is read from a slow disk."""


def find_children(settings: Settings) -> list[Child]:
    """The reader when there is no other upstream, and one server for each GGUF."""
    found = [_llama_cpp(one, settings.concurrency) for one in settings.local_upstreams]
    return [_reader(settings), *found] if settings.needs_reader else found


def complete(settings: Settings, urls: Mapping[Child, str]) -> GatewaySettings:
    """The gateway's part, with the addresses of the children."""
    local = {gguf_name(one): urls[_llama_cpp(one, settings.concurrency)] for one in settings.local_upstreams}
    if not settings.needs_reader:
        return settings.gateway(urls=local)
    return settings.gateway(UpstreamSettings(url=urls[_reader(settings)], name="reader", kind="reader"))


def _reader(settings: Settings) -> Child:
    arguments = ["--host", "127.0.0.1", "--with-parent", str(os.getpid())]
    if settings.whisper_model is not None:
        arguments += ["--whisper-model", str(settings.whisper_model)]
    return Child("the reader", "dabom.reader", tuple(arguments))


def _llama_cpp(one: UpstreamSettings, concurrency: int) -> Child:
    arguments = ["--with-parent", "--model", str(one.gguf), "--alias", one.model or gguf_name(one)]
    arguments += ["--slots", str(one.concurrency or concurrency)]
    arguments += ["--context", str(one.max_model_len or GGUF_CONTEXT_TOKENS)]
    if one.mmproj is not None:
        arguments += ["--mmproj", str(one.mmproj)]
    return Child(
        f"llama.cpp of {gguf_name(one)}",
        "dabom.llama_cpp",
        tuple(arguments),
        ready_path="/health",
        ready_within_s=_LOAD_WITHIN_S,
        quiet=True,
    )
