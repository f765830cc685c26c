"""All settings in one value: from the environment, a `.env` and a YAML file; the first with a name wins."""

from __future__ import annotations

import difflib
import ipaddress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from pydantic import AliasChoices, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from dabom.errors import ConfigError
from dabom.gateway import Clocks, GatewaySettings, Key, Limits, UpstreamSettings


def _seed(name: str, field: str) -> AliasChoices:
    return AliasChoices(name, f"DABOM_{field.upper()}", field)


class Settings(BaseSettings, Clocks, Limits):
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
    forward_authorization: bool = Field(
        False, description="pass the client's `Authorization` on to the upstream"
    )
    early_stream: bool = Field(
        False, description="open streams at once and keep them alive while they wait; errors are then events"
    )
    log_file: Path | None = Field(None, description="file for the request log; standard error when unset")
    whisper_model: Path | None = Field(None, description="folder of a local Whisper model for the reader")

    def gateway(self, *more: UpstreamSettings) -> GatewaySettings:
        """The gateway's part, with upstreams that have been started meanwhile."""
        given = [*self.upstreams, *more]
        if self.base_url is not None:
            given.insert(0, UpstreamSettings(url=self.base_url, api_key=self.upstream_api_key))
        return GatewaySettings(
            upstreams=tuple(given),
            concurrency=self.concurrency,
            early_stream=self.early_stream,
            forward_authorization=self.forward_authorization,
            api_key=self.api_key,
            clocks=Clocks(**{name: getattr(self, name) for name in Clocks.model_fields}),
            limits=Limits(**{name: getattr(self, name) for name in Limits.model_fields}),
        )

    @property
    def needs_reader(self) -> bool:
        """Whether no upstream is configured."""
        return self.base_url is None and not self.upstreams


def load_settings(file: Path | None = None, **given: Any) -> Settings:
    """Settings from the environment, `file`, and `given`, which wins over both. Raises `ConfigError`."""
    values = {} if file is None else _read_file(file)
    try:
        known = {name: value for name, value in given.items() if value is not None}
        settings = Settings(**_outside_environment(values) | known)
        settings.gateway()
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(flaw) for flaw in error.errors(include_input=False))) from None
    except UnicodeDecodeError:
        raise ConfigError(".env cannot be read: it is not UTF-8") from None
    except SettingsError as error:  # a list or a table in the environment is JSON
        raise ConfigError(f"{error}; it must be JSON") from None
    _check_exposure(settings)
    _check_names(settings)
    return settings


def _outside_environment(values: dict[str, Any]) -> dict[str, Any]:
    """What the file says and the environment does not."""
    from_environment = Settings().model_fields_set
    return {name: value for name, value in values.items() if name not in from_environment}


def _read_file(file: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} cannot be read: it is not UTF-8") from None
    except RecursionError:
        raise ConfigError(f"{file} is nested too deeply") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is not YAML: {_explain_yaml(error)}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{file} must hold names and values, such as `concurrency: 4`")
    for name in values:
        if name not in Settings.model_fields:
            near = difflib.get_close_matches(str(name), Settings.model_fields, n=1)
            hint = f"; did you mean {near[0]}?" if near else "; docs/settings.md lists all names"
            raise ConfigError(f"{file}: there is no setting {name}{hint}")
    return values


def _explain_yaml(error: yaml.YAMLError) -> str:
    """Line and reason. PyYAML's own text quotes the line, and so the key that may stand in it."""
    mark, reason = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    return f"line {mark.line + 1}: {reason}" if mark is not None else str(reason or "unreadable characters")


def _explain(flaw: Any) -> str:
    place = ".".join(str(step) for step in flaw["loc"])
    if flaw["type"] == "string_pattern_mismatch":  # the only pattern is that of an upstream's address
        return f"{'VLLM_BASE_URL' if place == 'url' else place} is no address such as http://HOST:PORT/v1"
    return f"{place}: {flaw['msg'].removeprefix('Value error, ')}"


def _check_exposure(settings: Settings) -> None:
    if settings.api_key is not None or settings.host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ConfigError(
            f"host is {settings.host}, which others can reach, and there is no key; "
            "set DABOM_API_KEY, or listen on 127.0.0.1"
        )


def _check_names(settings: Settings) -> None:
    names = [one.name or urlsplit(one.url).netloc for one in settings.gateway().upstreams]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ConfigError(f"two upstreams are called {', '.join(sorted(twice))}; give each a name of its own")
