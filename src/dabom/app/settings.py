"""All settings in one value, composed of those of the packages; `dabom.app.config` reads them."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from dabom.app.names import Names
from dabom.gateway import AuditSettings, Clocks, GatewaySettings, Key, Limits, UpstreamSettings
from dabom.gateway.admission.settings import AdmissionSettings
from dabom.gateway.keys import KeyList
from dabom.gateway.masking import MaskNames
from dabom.gateway.media_settings import MediaSettings
from dabom.gateway.routing.settings import RoutingSettings

if TYPE_CHECKING:
    from collections.abc import Mapping


def _seed(name: str, field: str) -> AliasChoices:
    return AliasChoices(name, f"DABOM_{field.upper()}", field)


class Settings(BaseSettings, Clocks, Limits, RoutingSettings):
    """What `dabom serve` can be told. In the environment a name is `DABOM_` and its capitals.

    Six have the names that vLLM's users know: `VLLM_BASE_URL`, `VLLM_API_KEY`, `VLLM_CONCURRENCY`,
    `VLLM_TIMEOUT_SECONDS`, `VLLM_ACQUIRE_TIMEOUT_SECONDS` and `MAX_BATCH_ITEMS`.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", env_prefix="DABOM_", env_file=".env", env_ignore_empty=True
    )

    host: str = Field("127.0.0.1", description="address to listen on; others than loopback need `api_key`")
    port: int = Field(8001, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    base_url: str | None = Field(
        None,
        validation_alias=_seed("VLLM_BASE_URL", "base_url"),
        description="the upstream, when there is one; ends in /v1; without any the reader is started",
    )
    upstream_api_key: Key | None = Field(
        None,
        validation_alias=_seed("VLLM_API_KEY", "upstream_api_key"),
        description="key of the upstream `base_url`",
    )
    upstreams: tuple[UpstreamSettings, ...] = Field(
        (), description="several upstreams: url, name, concurrency, api_key"
    )
    concurrency: int = Field(
        4,
        ge=1,
        validation_alias=_seed("VLLM_CONCURRENCY", "concurrency"),
        description="permits of each upstream: requests that it gets at a time",
    )
    total_timeout_s: float = Field(
        600,
        gt=0,
        validation_alias=_seed("VLLM_TIMEOUT_SECONDS", "total_timeout_s"),
        description="from the permit to the end of the answer",
    )
    acquire_timeout_s: float = Field(
        300,
        gt=0,
        validation_alias=_seed("VLLM_ACQUIRE_TIMEOUT_SECONDS", "acquire_timeout_s"),
        description="longest wait for a permit",
    )
    max_batch_items: int = Field(
        128,
        ge=1,
        validation_alias=_seed("MAX_BATCH_ITEMS", "max_batch_items"),
        description="items of a JSON batch",
    )
    api_key: Key | None = Field(None, description="key that clients must send as `Authorization: Bearer`")
    admin_key: Key | None = Field(
        None, description="key for `/admin/...` and the pages; without it there is no such path"
    )
    keys: KeyList = Field(
        (), description="several keys of clients, each with its limits; see [keys](keys.md)"
    )
    mask: MaskNames = Field(
        frozenset(), description="personal data that is masked in answers, such as `resident_number`"
    )
    forward_authorization: bool = Field(
        False, description="pass the client's `Authorization` on to the upstream"
    )
    early_stream: bool = Field(
        False, description="open streams at once and keep them alive while they wait; errors are then events"
    )
    media: MediaSettings = Field(
        MediaSettings(), description="limits and policy for pictures, clips and sounds; see [media](media.md)"
    )
    admission: AdmissionSettings = Field(
        AdmissionSettings(), description="who gets a permit when there are not enough"
    )
    audit: AuditSettings = Field(
        AuditSettings(), description="a record of each request; see [audit](audit.md)"
    )
    log_file: Path | None = Field(None, description="file for the request log; standard error when unset")
    whisper_model: Path | None = Field(None, description="folder of a local Whisper model for the reader")

    def gateway(self, *more: UpstreamSettings, urls: Mapping[str, str] | None = None) -> GatewaySettings:
        """The gateway's part, with upstreams that have been started meanwhile.

        `urls` are the addresses of those that serve a GGUF of this machine, by `gguf_name`.
        """
        clocks = Clocks(**{name: getattr(self, name) for name in Clocks.model_fields})
        given = [self._complete(one, clocks, urls or {}) for one in (*self.every_upstream, *more)]
        return GatewaySettings(
            upstreams=tuple(given),
            concurrency=self.concurrency,
            early_stream=self.early_stream,
            forward_authorization=self.forward_authorization,
            api_key=self.api_key,
            admin_key=self.admin_key,
            keys=self.keys,
            mask=self.mask,
            clocks=clocks,
            limits=Limits(**{name: getattr(self, name) for name in Limits.model_fields}),
            routing=self.names(*given).resolve(),
            media=self.media,
            admission=self.admission,
            audit=self.audit,
        )

    @property
    def every_upstream(self) -> tuple[UpstreamSettings, ...]:
        """Those that are configured, in either way. Raises `ValidationError` for a wrong `base_url`."""
        if self.base_url is None:
            return self.upstreams
        return (UpstreamSettings(url=self.base_url, api_key=self.upstream_api_key), *self.upstreams)

    @property
    def local_upstreams(self) -> tuple[UpstreamSettings, ...]:
        """Those that the gateway itself serves."""
        return tuple(one for one in self.upstreams if one.gguf is not None)

    def names(self, *upstreams: UpstreamSettings) -> Names:
        """What the names in models, routes and rules stand for."""
        routing = {name: getattr(self, name) for name in RoutingSettings.model_fields}
        return Names(upstreams, RoutingSettings(**routing))

    @property
    def needs_reader(self) -> bool:
        """Whether no upstream is configured."""
        return self.base_url is None and not self.upstreams

    @staticmethod
    def _complete(one: UpstreamSettings, clocks: Clocks, urls: Mapping[str, str]) -> UpstreamSettings:
        """An upstream as the gateway needs it: with an address, and with all clocks if it has any."""
        changes: dict[str, object] = {}
        if one.clocks is not None:
            named = {name: getattr(one.clocks, name) for name in one.clocks.model_fields_set}
            changes["clocks"] = clocks.model_copy(update=named)
        if one.gguf is not None:
            name = gguf_name(one)
            changes |= {"name": name, "url": urls.get(name, one.url), "model": one.model or name}
            changes["max_model_len"] = one.max_model_len or GGUF_CONTEXT_TOKENS
            if one.mmproj is None and one.modalities is None:
                changes["modalities"] = frozenset()
        return one.model_copy(update=changes) if changes else one


GGUF_CONTEXT_TOKENS = 8192
"""What a request to a GGUF and its answer may have together when nothing is said: a model's own limit can be
256k, and llama.cpp takes the memory for it at the start."""


def gguf_name(one: UpstreamSettings) -> str:
    """The name of an upstream that serves a GGUF: its own, or that of the file."""
    return one.name or (one.gguf.stem if one.gguf is not None else "")


def exposure(settings: Settings) -> str | None:
    """What is wrong when others can reach the gateway and it asks for no key."""
    if settings.api_key is not None or settings.keys or settings.host == "localhost":
        return None
    try:
        loopback = ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        loopback = False
    if loopback:
        return None
    return (
        f"host is {settings.host}, which others can reach, and there is no key; "
        "set DABOM_API_KEY or `keys`, or listen on 127.0.0.1"
    )
