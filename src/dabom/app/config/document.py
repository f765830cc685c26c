"""A YAML file as values, with the line of each."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from dabom.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

Place = tuple[str | int, ...]
"""Where a value stands: names of mappings and numbers of lists, from the outside in."""
_MOST_VALUES = 100_000
_MOST_BYTES = 2**20
_YAML = "tag:yaml.org,2002:"
_PLAIN = frozenset({f"{_YAML}map", f"{_YAML}seq"})
_MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True)
class Flaw:
    """What is wrong, and where; no line: it is not the file's."""

    message: str
    line: int | None = None
    file: Path | None = None

    def __str__(self) -> str:
        return self.message if self.line is None else f"{self.file}, line {self.line}: {self.message}"


@dataclass
class Document:
    """The values of a file, the line of each, and what is wrong with them."""

    file: Path | None = None
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[Place, int] = field(default_factory=dict)
    flaws: list[Flaw] = field(default_factory=list)
    told: set[Place] = field(default_factory=set)
    """Places of which something wrong has been told; what follows from that needs no words."""
    outside: set[Place] = field(default_factory=set)
    """Places whose values come from a variable or a file, and are not shown."""

    def line(self, place: Place) -> int | None:
        """The line of a value, or of the nearest thing around it."""
        for end in range(len(place), 0, -1):
            if place[:end] in self.lines:
                return self.lines[place[:end]]
        return None

    def fault(self, place: Place, message: str) -> None:
        """Note what is wrong with the value at a place."""
        self.flaws.append(self.flaw(place, message))
        self.told.add(place)

    def knows(self, place: Place) -> bool:
        """Whether something wrong has been told of a value, or of what is around it."""
        return any(place[:end] in self.told for end in range(1, len(place) + 1))

    def flaw(self, place: Place, message: str) -> Flaw:
        """What is said of the value at a place."""
        return Flaw(message, self.line(place), self.file)

    def move(self, old: Place, new: Place) -> None:
        """Let the lines of what stood at `old`, and inside it, be found at `new`."""
        moved = {new + at[len(old) :]: line for at, line in self.lines.items() if at[: len(old)] == old}
        self.lines |= moved
        for places in (self.told, self.outside):
            places |= {new + at[len(old) :] for at in places if at[: len(old)] == old}


def read_document(file: Path, text: str | None = None) -> Document:
    """The file's values, or those of `text`. Raises `ConfigError` when it cannot be read or is not YAML."""
    try:
        return _Builder(file, _read(file) if text is None else text).build()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} cannot be read: it is not UTF-8") from None
    except RecursionError:
        raise ConfigError(f"{file} is nested too deeply") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is not YAML: {_explain(error)}") from None
    except _NotNamesError as error:
        line = f", line {error.line}" if error.line else ""
        raise ConfigError(f"{file}{line} must hold names and values, such as `concurrency: 4`") from None


def _read(file: Path) -> str:
    found = file.stat()
    if stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{file} cannot be read: it is a folder; name the file in it")
    if not stat.S_ISREG(found.st_mode):  # a pipe can be read once, and a reload would find it empty
        raise ConfigError(f"{file} cannot be read: it is no file that can be read twice; write it to disk")
    if found.st_size > _MOST_BYTES:
        raise ConfigError(f"{file} has {found.st_size:,} bytes; a configuration has at most {_MOST_BYTES:,}")
    text = file.read_text(encoding="utf-8-sig")
    if not text.strip():  # most likely it is being written at this moment
        raise ConfigError(f"{file} is empty; write what it shall hold, or a comment if that is nothing")
    return text


def _explain(error: yaml.YAMLError) -> str:
    """Line and reason. PyYAML's own text quotes the line, and so the key that may stand in it."""
    mark, reason = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    return f"line {mark.line + 1}: {reason}" if mark is not None else str(reason or "unreadable characters")


class _NotNamesError(Exception):
    def __init__(self, line: int | None) -> None:
        self.line = line


class _Builder:
    """Walks the nodes of a document, which know their lines, where PyYAML's own constructor forgets them."""

    def __init__(self, file: Path, text: str) -> None:
        self._loader = yaml.SafeLoader(text)
        self._made = Document(file)
        self._merged: set[int] = set()
        self._count = 0

    def build(self) -> Document:
        try:
            node = self._loader.get_single_node()
            if node is None:
                return self._made
            if not isinstance(node, yaml.MappingNode):
                empty = isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"
                if empty:
                    return self._made
                raise _NotNamesError(_line(node))
            self._made.values = self._mapping(node, ())
            return self._made
        finally:
            self._loader.dispose()

    def _value(self, node: yaml.Node, place: Place) -> Any:
        self._count += 1
        if self._count > _MOST_VALUES:  # aliases of aliases grow without end
            raise yaml.MarkedYAMLError(
                problem=f"the file holds more than {_MOST_VALUES:,} values", problem_mark=node.start_mark
            )
        if isinstance(node, yaml.CollectionNode) and node.tag not in _PLAIN:
            self._flaw(_told_of(node.tag), node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self._item(one, (*place, number)) for number, one in enumerate(node.value)]
        try:
            return self._loader.construct_object(node)
        except yaml.constructor.ConstructorError:
            self._flaw(_told_of(node.tag), node)
            return node.value
        except ValueError:  # of a date that no calendar has, or of a number with thousands of digits
            return node.value

    def _item(self, node: yaml.Node, place: Place) -> Any:
        self._made.lines[place] = _line(node)
        return self._value(node, place)

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        if id(node) not in self._merged:
            self._find_twins(node)
            self._loader.flatten_mapping(node)
            self._merged.add(id(node))
        values: dict[str, Any] = {}
        for name, one in node.value:
            if not isinstance(name, yaml.ScalarNode):
                self._flaw("a name must be one word, not a list or a table", name)
                continue
            key = str(name.value)
            self._made.lines[(*place, key)] = _line(name)
            values[key] = self._value(one, (*place, key))
        return values

    def _find_twins(self, node: yaml.MappingNode) -> None:
        first: dict[str, int] = {}
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode) and name.tag != _MERGE:
                if name.value in first:
                    self._flaw(
                        f"{name.value} stands here again; it was set on line {first[name.value]}", name
                    )
                first.setdefault(name.value, _line(name))

    def _flaw(self, message: str, node: yaml.Node) -> None:
        self._made.flaws.append(Flaw(message, _line(node), self._made.file))


def _told_of(tag: str) -> str:
    return f"the tag {tag.replace(_YAML, '!!')} means nothing here; leave it out"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
