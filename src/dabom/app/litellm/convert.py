"""The sections of a LiteLLM file, one after the other."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from dabom.app.config.document import read_document
from dabom.app.config.load import read_settings
from dabom.app.litellm.reasons import OTHER, REASONS
from dabom.app.litellm.servers import Servers, variable
from dabom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dabom.app.config.document import Place

_OURS = "DABOM_API_KEY"
_CHAINS = ("fallbacks", "context_window_fallbacks")
_HEAD = """\
# From {file}. `dabom check --config THIS_FILE` shows where each kind of request goes.
"""


@dataclass(frozen=True)
class Conversion:
    """A text for `dabom.yaml`; what is not in it, and what a person should look at, each with its line."""

    text: str
    dropped: list[str]
    notes: list[str]


def convert(file: Path) -> Conversion:
    """Turn a LiteLLM file into ours. Raises `ConfigError` when it is none."""
    return _Converter(file).convert()


class _Converter:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._document = read_document(file)
        if not isinstance(self._document.values.get("model_list"), list):
            raise ConfigError(f"{file} has no model_list; is it a LiteLLM file?")
        self._dropped: list[tuple[int, str]] = []
        self._notes: list[tuple[int, str]] = []
        self._servers = Servers(self._drop, self._note)
        self._replicas: defaultdict[str, list[str]] = defaultdict(list)
        self._chains: defaultdict[str, list[str]] = defaultdict(list)
        self._aliases: dict[str, str] = {}
        self._top: dict[str, Any] = {}

    def convert(self) -> Conversion:
        values = self._document.values
        for number, entry in enumerate(values.pop("model_list")):
            self._model(entry, ("model_list", number))
        for section in ("router_settings", "litellm_settings", "general_settings"):
            if isinstance(given := values.pop(section, None), dict):
                self._section(given, (section,))
        self._leave(values, ())
        self._add_fallbacks()
        if blind := [name for name, one in self._servers.found.items() if "modalities" not in one]:
            told = f"no line says what {', '.join(blind)} can take; set `modalities`, or they get everything"
            self._note(("model_list",), told)
        text = _HEAD.format(file=self._file.name) + _dump(self._top | self._fleet())
        self._check(text)
        return Conversion(text, _sorted(self._dropped), _sorted(self._notes))

    def _drop(self, place: Place, why: str) -> None:
        self._dropped.append(self._said(place, why))

    def _note(self, place: Place, what: str) -> None:
        self._notes.append(self._said(place, what))

    def _said(self, place: Place, text: str) -> tuple[int, str]:
        line = self._document.line(place) or 0
        shown = ".".join(str(step) for step in place)
        return line, f"{self._file}, line {line}: {shown}: {text}"

    def _leave(self, values: dict[str, Any], place: Place) -> None:
        """Tell what nobody has taken out."""
        for name in values:
            self._drop((*place, name), REASONS.get(name, OTHER))

    def _model(self, entry: Any, place: Place) -> None:
        name = entry.get("model_name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name:
            self._drop(place, "it has no model_name")
            return
        if "*" in name:
            self._drop((*place, "model_name"), "names with * are not known; list the models one by one")
            return
        entry.pop("model_name")
        params, at = entry.pop("litellm_params", None), (*place, "litellm_params")
        fallbacks = params.pop("fallbacks", []) if isinstance(params, dict) else []
        upstream = self._servers.add(params, name, at)
        if upstream is None:
            return
        info = entry.pop("model_info", None)
        self._servers.see(upstream, info if isinstance(info, dict) else {})
        self._leave(params, at)
        self._leave(info if isinstance(info, dict) else {}, (*place, "model_info"))
        self._leave(entry, place)
        if upstream not in self._replicas[name]:
            self._replicas[name].append(upstream)
        self._own_fallbacks(name, fallbacks, (*at, "fallbacks"))

    def _own_fallbacks(self, name: str, fallbacks: Any, place: Place) -> None:
        for number, one in enumerate(fallbacks if isinstance(fallbacks, list) else []):
            if isinstance(one, str):
                self._chains[name].append(one)
            elif upstream := self._servers.add(one, _short(one, name), (*place, number)):
                self._servers.see(upstream, {})
                self._leave(one, (*place, number))
                self._chains[name].append(upstream)

    def _section(self, given: dict[str, Any], place: Place) -> None:
        for chain in _CHAINS:
            self._take_chain(given.pop(chain, []), (*place, chain))
        if isinstance(last := given.pop("default_fallbacks", None), list):
            for name in self._replicas:
                self._chains[name] += [one for one in last if isinstance(one, str) and one != name]
        for aliases in ("model_group_alias", "model_alias_map"):
            for alias, meant in (given.pop(aliases, None) or {}).items():
                model = meant.get("model") if isinstance(meant, dict) else meant
                self._aliases[alias] = str(model)
        whole = given.pop("timeout", given.pop("request_timeout", None))
        if clocks := self._servers.clocks(whole, given.pop("stream_timeout", None), place):
            self._top["clocks"] = clocks
        if isinstance(size := given.pop("max_request_size_mb", None), int | float):
            self._top["limits"] = {"max_body_bytes": int(size * 2**20)}
        self._master_key(given.pop("master_key", None), (*place, "master_key"))
        self._leave(given, place)

    def _take_chain(self, chains: Any, place: Place) -> None:
        for number, one in enumerate(chains if isinstance(chains, list) else []):
            for name, following in one.items() if isinstance(one, dict) else ():
                targets = [target for target in following if isinstance(target, str)]
                if name == "*":
                    for model in self._replicas:
                        self._chains[model] += [target for target in targets if target != model]
                else:
                    self._chains[name] += targets
                if len(targets) < len(following):
                    self._drop((*place, number), "a fallback with a body of its own is not known")

    def _master_key(self, value: Any, place: Place) -> None:
        if not isinstance(value, str):
            return
        name = variable(value) or _OURS
        self._top["api_key_env"] = name
        if variable(value) is None:
            self._note(place, f"the key stands there in clear and is not copied; put it into {name}")
        self._note(place, "it opens no /admin path here; see admin_key in docs/keys.md")

    def _add_fallbacks(self) -> None:
        for name in [
            name for name in self._chains if name not in self._replicas and name not in self._aliases
        ]:
            self._chains.pop(name)
            self._note(
                ("model_list",), f"fallbacks are given for {name}, which is no model; they are left out"
            )
        known = {*self._replicas, *self._servers.found, *self._aliases}
        for name, chain in self._chains.items():
            for unknown in [one for one in chain if one not in known]:
                self._note(("model_list",), f"the fallback {unknown} of {name} is no model; it is left out")
            self._chains[name] = [one for one in dict.fromkeys(chain) if one in known and one != name]

    def _fleet(self) -> dict[str, Any]:
        models: dict[str, Any] = {}
        for name, replicas in self._replicas.items():
            following = self._flat(name, (name,))
            if not following and len(replicas) == 1:
                models[name] = replicas[0]
            else:
                models[name] = [replicas if len(replicas) > 1 else replicas[0], *following]
        for alias, meant in self._aliases.items():
            if meant in self._replicas:
                models[alias] = meant
            else:
                self._note(
                    ("model_list",), f"the alias {alias} means {meant}, which is no model; it is left out"
                )
        return {"upstreams": self._servers.checked(), "models": models}

    def _flat(self, name: str, above: tuple[str, ...]) -> list[Any]:
        """The fallbacks of a model as steps of upstreams. Theirs may point in circles."""
        steps: list[Any] = []
        for one in self._chains.get(name, []):
            meant = self._aliases.get(one, one)
            replicas = self._replicas.get(meant) or [one]
            step = replicas if len(replicas) > 1 else replicas[0]
            if step not in steps and meant not in above:
                steps.append(step)
        return steps

    def _check(self, text: str) -> None:
        """Ours must be able to read it; variables that are not set yet are no mistake."""
        names = set(re.findall(r"_env: (\w+)|\$\{(\w+)\}", text))
        variables = {name: "http://placeholder" for pair in names for name in pair if name}
        flaws = read_settings(self._file, text=text, variables=variables).flaws
        if flaws:
            raise ConfigError("; ".join(flaw.message for flaw in flaws))


def _short(one: Any, name: str) -> str:
    model = one.get("model") if isinstance(one, dict) else None
    return str(model).rpartition("/")[2] if model else f"{name}-fallback"


def _sorted(lines: list[tuple[int, str]]) -> list[str]:
    return list(dict.fromkeys(text for _, text in sorted(lines, key=lambda one: one[0])))


def _dump(values: dict[str, Any]) -> str:
    return "\n".join(_sections(values))


def _sections(values: dict[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield yaml.safe_dump(
            {name: value}, sort_keys=False, allow_unicode=True, width=100, default_flow_style=False
        )
