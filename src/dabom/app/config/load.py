"""Settings from the environment, a `.env` and a file; the first that has a name wins."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dotenv import dotenv_values
from pydantic import AliasChoices, ValidationError
from pydantic_settings import SettingsError

from dabom.app.config.document import Document, Flaw, read_document
from dabom.app.config.secrets import Secrets
from dabom.app.config.shape import fields_at, near
from dabom.app.config.shorthand import SECTIONS, write_out
from dabom.app.config.wrong import reason
from dabom.app.names import idle_rules
from dabom.app.settings import Settings, exposure
from dabom.errors import ConfigError
from dabom.families import FAMILIES, find
from dabom.gateway import find_twins, is_hash
from dabom.gateway.routing import AUTO, target_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from dabom.app.config.document import Place

_BASES = frozenset({"upstreams", "models", "routes", "base_url", "host", "api_key", "keys"})
"""Settings that others are checked against."""
_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")
_NO_ADDRESS = "is no address such as http://HOST:PORT/v1"


@dataclass(frozen=True)
class Reading:
    """What a file and the environment say. `settings` are there when there are no flaws."""

    settings: Settings | None
    flaws: tuple[Flaw, ...]
    warnings: tuple[Flaw, ...] = ()


def load_settings(file: Path | None = None, **given: Any) -> Settings:
    """Settings from the environment, `file`, and `given`, which wins over both. Raises `ConfigError`."""
    reading = read_settings(file, **given)
    if reading.settings is None:
        raise ConfigError("\n".join(map(str, reading.flaws)))
    return reading.settings


def read_settings(
    file: Path | None = None,
    *,
    text: str | None = None,
    variables: Mapping[str, str] | None = None,
    **given: Any,
) -> Reading:
    """The same with all that is wrong, and with what is allowed and unwise.

    `text` is the file's, when it is not to be read; `variables` are those that it may name, else the
    environment and `.env`. Raises `ConfigError` when the file cannot be read at all.
    """
    document = Document() if file is None else read_document(file, text)
    try:
        secrets = Secrets(document, Settings, _variables() if variables is None else variables)
    except UnicodeDecodeError:
        raise ConfigError(".env cannot be read: it is not UTF-8") from None
    secrets.put()
    write_out(document)
    _drop_unknown(document)
    _drop_empty(document)
    settings = _validate(document, {name: value for name, value in given.items() if value is not None})
    if settings is not None:
        _check_whole(settings, document)
    flaws = tuple(dict.fromkeys(sorted(document.flaws, key=_by_line)))
    if settings is None or flaws:
        return Reading(None, flaws)
    found = (
        *_literal_secrets(secrets),
        *_idle_rules(settings, document),
        *_shut_keys(settings, document),
        *_odd_addresses(settings, document),
    )
    unwise = sorted(found, key=_by_line)
    return Reading(settings, (), tuple(unwise))


def _variables() -> dict[str, str]:
    from_file = {name: value for name, value in dotenv_values(".env").items() if value}
    return from_file | dict(os.environ)


def _by_line(flaw: Flaw) -> int:
    return flaw.line or 0


def _drop_unknown(document: Document) -> None:
    names = (*Settings.model_fields, *SECTIONS)
    for name in list(document.values):
        if name in Settings.model_fields:
            continue
        meant = near(name, names)
        hint = f"did you mean {meant}?" if meant else "docs/settings.md lists all names"
        document.fault((name,), f"there is no setting {name}; {hint}")
        document.values.pop(name)


def _drop_empty(document: Document) -> None:
    """A section whose lines are all comments says nothing."""
    for name in [name for name, value in document.values.items() if value is None]:
        document.values.pop(name)


def _validate(document: Document, given: dict[str, Any]) -> Settings | None:
    lines = document.lines
    try:
        document.lines = {}  # what the environment says is on no line of the file
        from_environment = Settings().model_fields_set
        document.lines = {at: line for at, line in lines.items() if at[0] not in from_environment}
        values = {name: value for name, value in document.values.items() if name not in from_environment}
        settings = Settings(**values | given)
    except ValidationError as error:
        document.flaws += _explain(error, document)
        wrong = {_place(flaw["loc"])[0] for flaw in error.errors(include_input=False)}
        return None if wrong & _BASES else _validate_rest(document, given, wrong)
    except SettingsError as error:  # a list or a table in the environment is JSON
        document.flaws.append(Flaw(f"{error}; it must be JSON"))
        return None
    try:
        settings.gateway()
    except ValidationError as error:  # the only part that is made late is the upstream `base_url`
        for flaw in error.errors():
            told = _NO_ADDRESS if flaw["type"] == "string_pattern_mismatch" else reason(flaw, shown=False)
            document.fault(("base_url",), f"VLLM_BASE_URL {told}" if told is _NO_ADDRESS else f"url: {told}")
        return None
    return settings


def _validate_rest(document: Document, given: dict[str, Any], wrong: set[Any]) -> Settings | None:
    """The settings without those that are wrong, to see whether the names in them fit together."""
    values = {name: value for name, value in document.values.items() if name not in wrong}
    with suppress(ValidationError):  # of what the environment says
        return Settings(**values | given)
    return None


def _check_whole(settings: Settings, document: Document) -> None:
    """What is wrong between settings that are right by themselves."""
    if (told := exposure(settings)) and not document.knows(("host",)):
        document.fault(("host",), told)
    for number, one in enumerate(settings.upstreams):
        if one.family is not None and find(one.family) is None:
            meant = near(one.family, FAMILIES)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(FAMILIES)}"
            document.fault(("upstreams", number, "family"), f"no family is called {one.family}; {hint}")
        for name, path in (("gguf", one.gguf), ("mmproj", one.mmproj)):
            if path is not None and not path.is_file():
                document.fault(("upstreams", number, name), f"{name} {path} is no file")
        if one.gguf is not None and find_spec("xllamacpp") is None:
            told = "a gguf is served by the wheel xllamacpp, which is not installed; install dabom[llama-cpp]"
            document.fault(("upstreams", number, "gguf"), told)
    gateway = settings.gateway()
    if twins := find_twins(gateway):
        told = f"{twins[0]} is the same key as {twins[1]}; make another: dabom keys new"
        document.fault((twins[0],), told)
    names = settings.names(*gateway.upstreams)
    names.resolve()
    more = len(names.upstreams) - len(settings.upstreams)
    for place, message in names.flaws:
        if place[0] == "upstreams" and isinstance(place[1], int):
            document.fault(("upstreams", place[1] - more), message)
        else:
            document.fault(place, message)


def _explain(error: ValidationError, document: Document) -> Iterator[Flaw]:
    for flaw in error.errors():
        place = _place(flaw["loc"])
        if document.knows(place):
            continue
        shown = ".".join(str(step) for step in flaw["loc"])
        if flaw["type"] == "string_pattern_mismatch":  # the only pattern is that of an upstream's address
            message = f"{shown} {_NO_ADDRESS}"
        elif flaw["type"] == "extra_forbidden":
            known = fields_at(Settings, place[:-1]) or {}
            meant = near(str(place[-1]), known)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
            message = f"{shown}: there is no such setting; {hint}"
        else:
            seen = place in document.lines and place not in document.outside
            message = f"{shown}: {reason(flaw, shown=seen)}"
        yield document.flaw(place, message)


def _place(loc: tuple[int | str, ...]) -> Place:
    """Where a flaw stands in the file; pydantic names a setting by any of its names."""
    for name, field in Settings.model_fields.items():
        alias = field.validation_alias
        if isinstance(alias, AliasChoices) and loc[0] in alias.choices:
            return (name, *loc[1:])
    return loc


def _literal_secrets(secrets: Secrets) -> Iterator[Flaw]:
    for place in secrets.literal:
        value = secrets.at(place)
        if place[-1] == "database" and not _PASSWORD.search(value):
            continue
        if len(place) == 1 and is_hash(value):
            continue
        shown, name = ".".join(str(step) for step in place), place[-1]
        told = (
            f"{shown} is a secret in the file; name a variable ({name}_env) or a file ({name}_file) instead"
        )
        yield secrets.document.flaw(place, told)


def _odd_addresses(settings: Settings, document: Document) -> Iterator[Flaw]:
    """Addresses under which hardly any server answers."""
    for number, one in enumerate(settings.upstreams):
        if one.url and not re.search(r"/v\d+/?$", one.url):
            told = f"the url of {target_name(one)} does not end in /v1, as that of most servers does"
            yield document.flaw(("upstreams", number, "url"), told)


def _shut_keys(settings: Settings, document: Document) -> Iterator[Flaw]:
    """Keys for names that the configuration does not have. An upstream may still tell one when it runs."""
    upstreams = settings.gateway().upstreams
    named = {name for one in upstreams for name in (target_name(one), one.model) if name}
    names = {*settings.models, *settings.routes, *AUTO, *named}
    for number, key in enumerate(settings.keys):
        for name in sorted((key.routes or frozenset()) - names):
            told = f"the key {key.id} is for {name}, which no model or route is called"
            yield document.flaw(("keys", number, "routes"), told)


def _idle_rules(settings: Settings, document: Document) -> Iterator[Flaw]:
    for late, early in idle_rules(settings.auto):
        told = f"no request reaches rule {late + 1} of auto; rule {early + 1} takes them all"
        yield document.flaw(("auto", late), told)
