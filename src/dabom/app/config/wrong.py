"""What pydantic finds wrong with a value, in words for those who write YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dabom.app.config.shape import near

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_TABLE, _LIST = "must be a table of names and values", "must be a list, such as [A, B]"
_WORDS = {
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a whole number of at most a few digits",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a number that ends",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": _TABLE,
    "model_type": _TABLE,
    "model_attributes_type": _TABLE,
    "tuple_type": _LIST,
    "list_type": _LIST,
    "frozen_set_type": _LIST,
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "literal_error": "must be {expected}",
}
_SILENT = {
    "missing": "is missing",
    "too_short": "must not be empty",
    "string_type": "must be text; put quotes around it",
    "path_type": "must be the path of a file",
}
"""Kinds whose value may be a secret, or tells nothing."""
_SHOWN_LETTERS = 40


def reason(flaw: ErrorDetails, *, shown: bool) -> str:
    """What is allowed, what was found if it may be `shown`, and what was probably meant."""
    kind, found = flaw["type"], flaw["input"]
    if kind in _SILENT:
        return _SILENT[kind]
    if kind not in _WORDS:
        return flaw["msg"].removeprefix("Value error, ")
    said = _WORDS[kind].format(**flaw.get("ctx", {}))
    if not shown:
        return said
    said += f", not {_sort(found) if _WORDS[kind] in (_TABLE, _LIST) else _name(found)}"
    if kind == "literal_error" and isinstance(found, str):
        allowed = flaw["ctx"]["expected"].replace("' or '", "', '").strip("'").split("', '")
        meant = near(found, allowed)
        said += f"; did you mean {meant}?" if meant else ""
    return said


def _sort(found: Any) -> str:
    """What stands where a table or a list should; its text may be a key."""
    if isinstance(found, dict | list | tuple):
        return "a table" if isinstance(found, dict) else "a list"
    return "nothing" if found is None else "text" if isinstance(found, str) else "one value"


def _name(found: Any) -> str:
    if found is None or isinstance(found, dict | list | tuple):
        return _sort(found)
    text = str(found).lower() if isinstance(found, bool) else str(found)
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}..."
