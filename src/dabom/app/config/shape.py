"""What the settings look like at a place of the file: which names there are, and which are secrets."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, SecretStr

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic.fields import FieldInfo

    from dabom.app.config.document import Place


def fields_at(model: type[BaseModel], place: Place) -> Mapping[str, FieldInfo] | None:
    """The settings of the mapping at a place; None when its names are free, or when it is no mapping."""
    found: Any = model
    for step in place:
        if isinstance(found, type) and issubclass(found, BaseModel):
            field = found.model_fields.get(str(step))
            if field is None:
                return None
            found = field.annotation
        else:
            found = _inside(found, step)
        found = _settings_in(found) or found
    one = _settings_in(found)
    return None if one is None else one.model_fields


def secret(field: FieldInfo) -> bool:
    """Whether the value of a setting must not be seen."""
    return any(one is SecretStr for one in _kinds(field.annotation))


def near(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant."""
    found = difflib.get_close_matches(name, list(names), n=1)
    return found[0] if found else None


def _settings_in(kind: Any) -> type[BaseModel] | None:
    """The settings class in `X`, `X | None` or `Annotated[X, ...]`, but not in a list of it."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    if getattr(kind, "__origin__", None) in (tuple, list, dict, frozenset, set):
        return None
    return next((found for one in get_args(kind) if (found := _settings_in(one))), None)


def _inside(kind: Any, step: str | int) -> Any:
    """What is in a list, for a number, or under the names of a mapping."""
    origin, inner = getattr(kind, "__origin__", None), get_args(kind)
    if origin is dict and isinstance(step, str):
        return inner[1]
    if origin in (tuple, list) and isinstance(step, int):
        return inner[0]
    return next((found for one in inner if (found := _inside(one, step)) is not None), None)


def _kinds(kind: Any) -> Iterable[Any]:
    yield kind
    for one in get_args(kind):
        yield from _kinds(one)
