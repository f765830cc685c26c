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
from dabom.gateway.routing import AUTO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dabom.app.config.document import Place

_OURS = "DABOM_API_KEY"
_MOST_FALLBACKS = 5
"""How far LiteLLM follows the fallbacks of fallbacks (`ROUTER_MAX_FALLBACKS`)."""
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
        self._larger: defaultdict[str, list[str]] = defaultdict(list)
        self._general: list[str] = []
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
        if not self._servers.found:
            self._note(("model_list",), "no model of it could be carried over; the built-in reader is used")
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
        if name in AUTO:
            self._drop((*place, "model_name"), f"{name} is a name of the gateway's own; call it otherwise")
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
        self._take_chains(given.pop("fallbacks", []), self._chains, (*place, "fallbacks"))
        if larger := given.pop("context_window_fallbacks", []):
            self._take_chains(larger, self._larger, (*place, "context_window_fallbacks"))
            told = "they are the end of a route here, and so for other faults too"
            self._note((*place, "context_window_fallbacks"), told)
        if isinstance(general := given.pop("default_fallbacks", None), list):
            self._general = [one for one in general if isinstance(one, str)]
        for aliases in ("model_group_alias", "model_alias_map"):
            named = given.pop(aliases, None)
            for alias, meant in named.items() if isinstance(named, dict) else ():
                model = meant.get("model") if isinstance(meant, dict) else meant
                self._aliases[alias] = str(model)
        whole = given.pop("timeout", given.pop("request_timeout", None))
        if clocks := self._servers.clocks(whole, given.pop("stream_timeout", None), place):
            self._top.setdefault("clocks", clocks)  # the router's come first
        if isinstance(size := given.pop("max_request_size_mb", None), int | float):
            self._top["limits"] = {"max_body_bytes": int(size * 2**20)}
        self._master_key(given.pop("master_key", None), (*place, "master_key"))
        self._leave(given, place)

    def _take_chains(self, chains: Any, into: defaultdict[str, list[str]], place: Place) -> None:
        for number, one in enumerate(chains if isinstance(chains, list) else []):
            for name, following in one.items() if isinstance(one, dict) else ():
                given = following if isinstance(following, list) else [following]
                targets = [target for target in given if isinstance(target, str)]
                if name == "*":
                    self._general = targets
                else:
                    into[name] += targets
                if len(targets) < len(given):
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
        """Fallbacks of all models are for those that have none; the ones with more room come last."""
        for name in self._replicas:
            if not self._chains.get(name):
                self._chains[name] = list(self._general)
        for name, larger in self._larger.items():
            self._chains[name] += larger
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
            steps = [_step(replicas)]
            self._follow(name, steps, {name})
            models[name] = steps if len(steps) > 1 or len(replicas) > 1 else replicas[0]
        for alias, meant in self._aliases.items():
            if meant in self._replicas:
                models[alias] = meant
            else:
                self._note(
                    ("model_list",), f"the alias {alias} means {meant}, which is no model; it is left out"
                )
        return {"upstreams": self._servers.checked(), "models": models}

    def _follow(self, name: str, steps: list[Any], seen: set[str], depth: int = 1) -> None:
        """Add the fallbacks of a model, each with its own behind it, as LiteLLM follows them."""
        for one in self._chains.get(name, []):
            meant = self._aliases.get(one, one)
            if meant in seen:
                continue
            seen.add(meant)
            step = _step(self._replicas.get(meant) or [one])
            if step not in steps:
                steps.append(step)
            if depth < _MOST_FALLBACKS:
                self._follow(meant, steps, seen, depth + 1)

    def _check(self, text: str) -> None:
        """Ours must be able to read it; variables that are not set yet are no mistake."""
        names = set(re.findall(r"_env: (\w+)|\$\{(\w+)\}", text))
        variables = {name: "http://placeholder" for pair in names for name in pair if name}
        flaws = read_settings(self._file, text=text, variables=variables).flaws
        if flaws:
            raise ConfigError("; ".join(flaw.message for flaw in flaws))


def _step(replicas: list[str]) -> list[str] | str:
    return replicas if len(replicas) > 1 else replicas[0]


def _short(one: Any, name: str) -> str:
    model = one.get("model") if isinstance(one, dict) else None
    return str(model).rpartition("/")[2] if model else f"{name}-fallback"


def _sorted(lines: list[tuple[int, str]]) -> list[str]:
    return list(dict.fromkeys(text for _, text in sorted(lines, key=lambda one: one[0])))


def _dump(values: dict[str, Any]) -> str:
    return "\n".join(_sections(values))


class _Plain(yaml.SafeDumper):
    """Writes a list that stands in several places out in each, where YAML would refer to the first."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _sections(values: dict[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield yaml.dump(
            {name: value},
            Dumper=_Plain,
            sort_keys=False,
            allow_unicode=True,
            width=100,
            default_flow_style=False,
        )
