"""Values from outside the file: `NAME_env: VARIABLE`, `NAME_file: PATH` and `${VARIABLE}`."""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dabom.app.config.shape import fields_at, secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from dabom.app.config.document import Document, Place

_VARIABLE = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MOST_BYTES = 64 * 1024


@dataclass
class Secrets:
    """Puts in what a document names; `literal` are the places of secrets that stand in the file itself.

    `environ` has the variables. A variable or a file that is missing becomes a flaw of the document; no
    message holds a value.
    """

    document: Document
    model: type[BaseModel]
    environ: Mapping[str, str]
    literal: list[Place] = field(default_factory=list)

    def put(self) -> None:
        """Change the document's values in place."""
        self._mapping(self.document.values, ())

    def at(self, place: Place) -> str:
        """The text at a place of `literal`."""
        found: Any = self.document.values
        for step in place:
            found = found[step]
        return str(found)

    def _mapping(self, values: dict[str, Any], place: Place) -> None:
        fields = fields_at(self.model, place) or {}
        for name in list(values):
            stem, _, end = name.rpartition("_")
            if name not in fields and end in ("env", "file") and stem in fields and secret(fields[stem]):
                self._reference(values, name, place)
            else:
                literal = isinstance(values[name], str) and not _VARIABLE.search(values[name])
                if literal and name in fields and secret(fields[name]):
                    self.literal.append((*place, name))
                values[name] = self._value(values[name], (*place, name))

    def _value(self, value: Any, place: Place) -> Any:
        if isinstance(value, dict):
            self._mapping(value, place)
        elif isinstance(value, list):
            return [self._value(one, (*place, number)) for number, one in enumerate(value)]
        elif isinstance(value, str):
            if _VARIABLE.search(value):
                self.document.outside.add(place)
            return _VARIABLE.sub(lambda found: self._expanded(found, place), value)
        return value

    def _expanded(self, found: re.Match[str], place: Place) -> str:
        if found[1]:  # $${NAME} stands for ${NAME} itself
            return found[0][1:]
        return self._variable(found[2], place) or ""

    def _reference(self, values: dict[str, Any], name: str, place: Place) -> None:
        stem, _, end = name.rpartition("_")
        told, at = values.pop(name), (*place, name)
        if stem in values:
            self.document.fault(at, f"{name} and {stem} say the same; keep one of them")
            return
        if not isinstance(told, str) or not told:
            what = "the name of a variable" if end == "env" else "the path of a file"
            self.document.fault(at, f"{name} must be {what}")
            return
        found = self._variable(told, at) if end == "env" else self._file(told, at)
        if found is not None:
            values[stem] = found
            self.document.outside.add(at)
            self.document.move(at, (*place, stem))

    def _variable(self, name: str, place: Place) -> str | None:
        value = self.environ.get(name)
        if not value:
            shown = name if _VARIABLE.fullmatch(f"${{{name}}}") else "the variable that is named here"
            self.document.fault(place, f"{shown} is not set in the environment; set it, or name another")
            return None
        return value

    def _file(self, path: str, place: Place) -> str | None:
        try:
            if not stat.S_ISREG(Path(path).stat().st_mode):  # a pipe would be waited for
                self.document.fault(place, f"{path} cannot be read: it is no file")
                return None
            with Path(path).open("rb") as file:
                return file.read(_MOST_BYTES).decode()
        except OSError as error:
            self.document.fault(place, f"{path} cannot be read: {error.strerror}")
        except UnicodeDecodeError:
            self.document.fault(place, f"{path} cannot be read: it is not UTF-8")
        return None
