"""What the gateway can be told. Frozen values with their units in their names; `dabom.app` composes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from dabom.gateway.admission.settings import AdmissionSettings
from dabom.gateway.audit import AuditSettings
from dabom.gateway.keys import KeyList
from dabom.gateway.masking import MaskNames
from dabom.gateway.media_settings import MediaSettings
from dabom.gateway.routing.settings import Modality, RoutingSettings

UpstreamKind = Literal["vllm", "llama_cpp", "mlx", "openai", "reader"]


def _check_key(key: SecretStr) -> SecretStr:
    """A key as a header can carry it, without the line break in which files with a secret often end."""
    text = key.get_secret_value().strip()
    if not text:
        raise ValueError("the key is empty; leave it out when there is none")
    if not text.isprintable():  # a line break would end the header, half of a surrogate pair has no bytes
        raise ValueError("the key holds control characters or bytes that are not UTF-8")
    return SecretStr(text)


Key = Annotated[SecretStr, AfterValidator(_check_key)]
"""A secret that goes into `Authorization: Bearer`."""


def _check_url(url: str) -> str:
    """A URL whose parts can be used. Its text may hold a secret, so no message shows it."""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("the URL needs a host, and a port between 1 and 65535 if it has one")
    if "@" in parts.netloc:  # the name of an upstream is made of it, and stands in logs and metrics
        raise ValueError("the URL must not hold a user or a password; use the key of the upstream")
    return url


class Clocks(BaseModel):
    """How long each phase of a request may take."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="forbid")

    acquire_timeout_s: float = Field(300, gt=0, description="longest wait for a permit")
    connect_timeout_s: float = Field(5, gt=0, description="connection to the upstream")
    first_byte_timeout_s: float | None = Field(
        None,
        gt=0,
        description="from the permit to the upstream's first byte; unset: 120 for streams, 300 for streams "
        "with media, and the total for answers that are not streamed",
    )
    idle_timeout_s: float = Field(
        60, gt=0, description="silence in the middle of an answer; a client that takes nothing"
    )
    total_timeout_s: float = Field(600, gt=0, description="from the permit to the end of the answer")
    upload_idle_timeout_s: float = Field(30, gt=0, description="silence in the middle of a request's body")
    header_timeout_s: float = Field(
        15, gt=0, description="from the connection to the end of a request's head"
    )
    keepalive_comment_s: float = Field(
        15, gt=0, description="silence of a stream after which a comment line is sent"
    )
    drain_notice_s: float = Field(
        0, ge=0, description="from SIGTERM to the closing of the port; /readyz says 503 meanwhile"
    )
    drain_timeout_s: float = Field(30, ge=0, description="time for what runs to finish after SIGTERM")

    def first_byte_s(self, *, stream: bool, media: bool) -> float:
        """The limit for the first byte of one request."""
        if self.first_byte_timeout_s is not None:
            return self.first_byte_timeout_s
        if not stream:
            return self.total_timeout_s
        return 300 if media else 120


class UpstreamSettings(BaseModel):
    """One model server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[str, AfterValidator(_check_url)] = Field(
        "",
        description="OpenAI-compatible base, ends in /v1; left out with `gguf`",
        pattern=r"^https?://[^\s?#]+$",
    )
    name: str = Field("", description="name in logs and metrics; host and port when empty")
    concurrency: int | None = Field(
        None, ge=1, description="permits of this upstream; the general number when unset"
    )
    api_key: Key | None = Field(None, description="sent as `Authorization: Bearer`")
    kind: UpstreamKind = Field("openai", description="what server it is")
    model: str | None = Field(
        None, description="the name by which the upstream knows its model; learned from it when unset"
    )
    revision: str | None = Field(
        None,
        max_length=128,
        description="revision of the model, for the audit; unset: the `system_fingerprint` of the answers",
    )
    family: str | None = Field(
        None, description="model family for exact token counts; unset: costs are estimated"
    )
    modalities: frozenset[Modality] | None = Field(
        None, description="what it can take besides text; unset: everything"
    )
    token_budget: int | None = Field(
        None, ge=1, description="tokens in flight (prompt and answer) at a time; unset: not bounded"
    )
    max_model_len: int | None = Field(
        None, ge=1, description="longest prompt and answer in tokens; learned from the upstream when unset"
    )
    max_pixels: int | None = Field(None, ge=1, description="the server's own limit for pictures")
    trusts_media_options: bool | None = Field(
        None,
        description="vllm: whether it runs with `--trust-request-mm-kwargs`; unset: not known",
    )
    clocks: Clocks | None = Field(
        None, description="its own clocks; those that are not named keep the general value"
    )
    gguf: Path | None = Field(None, description="llama_cpp: a local model that the gateway itself serves")
    mmproj: Path | None = Field(None, description="llama_cpp: the vision part of `gguf`")

    @model_validator(mode="after")
    def _check_place(self) -> UpstreamSettings:
        """A server has an address, or a model that the gateway itself serves."""
        if self.gguf is None and not self.url:
            raise ValueError("an upstream needs a url, such as http://HOST:PORT/v1")
        if self.gguf is not None and self.kind != "llama_cpp":
            raise ValueError(f"gguf is served by kind llama_cpp, not by {self.kind}")
        if self.mmproj is not None and self.gguf is None:
            raise ValueError("mmproj is the vision part of a gguf; name that too")
        return self


class Limits(BaseModel):
    """How large things may be."""

    model_config = ConfigDict(frozen=True)

    max_body_bytes: int = Field(64 * 2**20, ge=1024, description="one request, or one item of a batch")
    max_batch_bytes: int = Field(512 * 2**20, ge=1024, description="a whole JSON batch")
    max_batch_items: int = Field(128, ge=1, description="items of a JSON batch")
    max_ndjson_bytes_in_flight: int = Field(
        16 * 2**20,
        ge=1024,
        description="items of an NDJSON batch that are waiting or running; the upload waits beyond it",
    )
    max_error_bytes: int = Field(2**20, ge=1024, description="an upstream's error body; cut beyond it")
    max_answer_bytes: int = Field(
        64 * 2**20, ge=1024, description="an upstream's answer to one item of a batch"
    )
    max_header_bytes: int = Field(64 * 2**10, ge=1024, description="the head of a request")


class GatewaySettings(BaseModel):
    """All of it."""

    model_config = ConfigDict(frozen=True)

    upstreams: tuple[UpstreamSettings, ...]
    concurrency: int = Field(4, ge=1)
    early_stream: bool = False
    forward_authorization: bool = False
    api_key: Key | None = None
    admin_key: Key | None = None
    keys: KeyList = ()
    mask: MaskNames = frozenset()
    clocks: Clocks = Clocks()
    limits: Limits = Limits()
    routing: RoutingSettings = RoutingSettings()
    media: MediaSettings = MediaSettings()
    audit: AuditSettings = AuditSettings()
    admission: AdmissionSettings = AdmissionSettings()
