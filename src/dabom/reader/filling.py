"""Values for the parts of a JSON schema.

Measured where a topic fits, else null, empty or the least valid value.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dabom.reader.patterns import example_of
from dabom.reader.topics import topic_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAX_DEPTH = 24
_MAX_STEPS = 20_000
_MAX_ITEMS = 1_000
_MAX_CHARS = 20_000
_FORMATS = {
    "date-time": "1970-01-01T00:00:00Z",
    "date": "1970-01-01",
    "time": "00:00:00Z",
    "duration": "PT0S",
    "email": "a@example.invalid",
    "hostname": "example.invalid",
    "ipv4": "192.0.2.0",
    "ipv6": "::",
    "uri": "about:blank",
    "uuid": "00000000-0000-0000-0000-000000000000",
}
_KINDS = ("null", "object", "array", "string", "number", "integer", "boolean")
_IMPLIED = {
    "object": ("properties", "required", "minProperties", "additionalProperties", "patternProperties"),
    "array": ("items", "prefixItems", "minItems", "contains", "uniqueItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


class Unfillable(Exception):
    """No valid value was found within the limits."""


class Filler:
    """Fills one schema.

    `validator` is asked whether a candidate is valid under a part of it, `resolver` for what a `$ref` means.
    """

    def __init__(self, topics: Mapping[str, Any], validator: Any, resolver: Any) -> None:
        self._topics = topics
        self._validator = validator
        self._resolver = resolver
        self._steps = 0

    def fill(self, schema: Any, topic: str | None = None, depth: int = 0) -> Any:
        """A value that is valid under `schema`, preferring what was measured. Raises Unfillable."""
        self._steps += 1
        if depth > _MAX_DEPTH or self._steps > _MAX_STEPS:
            raise Unfillable
        if schema is False:
            raise Unfillable
        if schema is True or schema == {}:
            return self._topics.get(topic or "", None)
        for candidate in self._candidates(schema, topic, depth):
            if self._valid(schema, candidate):
                return candidate
        raise Unfillable

    def _valid(self, schema: Any, value: Any) -> bool:
        return next(self._validator.evolve(schema=schema).iter_errors(value), None) is None

    def _candidates(self, schema: dict[str, Any], topic: str | None, depth: int) -> Iterator[Any]:
        topic = (
            topic_of(str(schema.get("title", ""))) or topic or topic_of(str(schema.get("description", "")))
        )
        branches = self._branches(schema)
        if not self._topics.get(topic or "") and ("anyOf" in schema or "oneOf" in schema):
            # Nothing measured: null before an invented value; an object first, as its parts may be known.
            ranks = {"object": 0, "null": 1}
            branches = iter(sorted(branches, key=lambda each: ranks.get(str(each.get("type")), 2)))
        for merged in branches:
            if "const" in merged:
                yield merged["const"]
            elif "enum" in merged:
                yield from self._choices(merged["enum"], topic)
            else:
                yield from self._made(merged, topic, depth)

    def _made(self, schema: dict[str, Any], topic: str | None, depth: int) -> Iterator[Any]:
        for kind in self._kinds(schema, topic):
            try:
                yield self._make(kind, schema, topic, depth)
            except Unfillable:
                continue

    def _choices(self, choices: list[Any], topic: str | None) -> Iterator[Any]:
        measured = self._topics.get(topic or "")
        told = str(measured).lower()
        if measured is not None:
            yield from (choice for choice in choices if choice == measured or str(choice).lower() == told)
        unsure = {"unknown", "none", "other", "n/a", "없음", "알 수 없음", "기타", "미상"}
        yield from (choice for choice in choices if choice is None or str(choice).lower() in unsure)
        yield from choices

    def _branches(self, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The schema with its references and alternatives merged in, each alternative once."""
        plain = {
            key: value for key, value in schema.items() if key not in {"$ref", "anyOf", "oneOf", "allOf"}
        }
        if "$ref" in schema:
            plain = _merge(self._resolve(schema["$ref"]), plain)
        for part in schema.get("allOf", []):
            plain = _merge(plain, part)
        if len(plain) > 256:
            raise Unfillable
        nested = any(key in plain for key in ("$ref", "anyOf", "oneOf", "allOf"))
        alternatives = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
        if not alternatives:
            yield from self._deeper(plain) if nested else (plain,)
            return
        for alternative in alternatives:
            if alternative is not False:
                yield from self._deeper(_merge(plain, alternative))

    def _deeper(self, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise Unfillable
        yield from self._branches(schema)

    def _resolve(self, reference: Any) -> Any:
        return self._resolver.lookup(str(reference)).contents

    def _kinds(self, schema: dict[str, Any], topic: str | None) -> list[str]:
        stated = schema.get("type")
        kinds = [stated] if isinstance(stated, str) else list(stated or ())
        if not kinds:
            kinds = [kind for kind, keys in _IMPLIED.items() if any(key in schema for key in keys)] or [
                "string"
            ]
            kinds += [kind for kind in _KINDS if kind not in kinds]
        if "null" in kinds:
            # Nothing measured is null; something measured is null only when nothing else fits.
            kinds.remove("null")
            kinds.insert(
                0 if self._topics.get(topic or "") in (None, []) and "object" not in kinds else len(kinds),
                "null",
            )
        return kinds

    def _make(self, kind: str, schema: dict[str, Any], topic: str | None, depth: int) -> Any:
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, topic, depth)
        if kind == "string":
            return self._string(schema, topic)
        if kind in {"number", "integer"}:
            return self._number(schema, topic, whole=kind == "integer")
        if kind == "boolean":
            return bool(self._topics.get(topic or "", False))
        return None

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        found: dict[str, Any] = {}
        for name in [*properties, *(name for name in required if name not in properties)]:
            part = properties.get(name, schema.get("additionalProperties", True))
            try:
                found[name] = self.fill(part, topic_of(name), depth + 1)
            except Unfillable:
                if name in required:
                    raise
        extra = schema.get("additionalProperties", True)
        least = int(schema.get("minProperties", 0))
        if least > _MAX_ITEMS:
            raise Unfillable
        for number in range(max(0, least - len(found))):
            found[f"field_{number + 1}"] = self.fill(extra, None, depth + 1)
        while len(found) > schema.get("maxProperties", len(found)):
            spare = next((name for name in reversed(found) if name not in required), None)
            if spare is None:
                raise Unfillable
            del found[spare]
        return found

    def _array(self, schema: dict[str, Any], topic: str | None, depth: int) -> list[Any]:
        least, most = int(schema.get("minItems", 0)), int(schema.get("maxItems", _MAX_ITEMS))
        least = max(least, 1 if "contains" in schema else 0)
        if least > _MAX_ITEMS:
            raise Unfillable
        prefix = schema.get("prefixItems", [])[: most if "maxItems" in schema else None]
        found = [self.fill(part, topic, depth + 1) for part in prefix] if least or topic else []
        part = schema.get("items", True)
        if isinstance(part, list):
            part = True
        found += [value for value in self._measured_items(topic) if part is True or self._valid(part, value)]
        found = found[:most]
        if schema.get("uniqueItems"):
            found = [value for at, value in enumerate(found) if value not in found[:at]]
        while len(found) < least:
            filler = schema.get("contains", part) if "contains" in schema and not found else part
            value = self.fill(filler, topic, depth + 1)
            found.append(self._other(value, found) if schema.get("uniqueItems") and value in found else value)
        return found

    def _measured_items(self, topic: str | None) -> list[Any]:
        measured = self._topics.get(topic or "")
        return list(measured) if isinstance(measured, list) else [] if measured is None else [measured]

    def _other(self, value: Any, taken: list[Any]) -> Any:
        number = len(taken)
        options = (number, str(value) + str(number), [number], {"n": number}, number % 2 == 0)
        return next(
            (option for option in options if type(option) is type(value) and option not in taken), number
        )

    def _string(self, schema: dict[str, Any], topic: str | None) -> str:
        if "pattern" in schema:
            made = example_of(str(schema["pattern"]), int(schema.get("minLength", 0)))
            if made is None:
                raise Unfillable
            return made
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        measured = self._topics.get(topic or "", "")
        text = "\n".join(map(str, measured)) if isinstance(measured, list) else str(measured)
        least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
        if least > _MAX_CHARS:
            raise Unfillable
        return text.ljust(least, "-")[: int(most) if most is not None else None]

    def _number(self, schema: dict[str, Any], topic: str | None, *, whole: bool) -> float | int:
        measured = self._topics.get(topic or "", 0)
        wanted = len(measured) if isinstance(measured, list) else measured
        if isinstance(wanted, bool) or not isinstance(wanted, int | float):
            wanted = 0
        step = schema.get("multipleOf") or (1 if whole else 0)
        low, high = _bounds(schema, step or 1e-6)
        value = min(max(wanted, low), high)
        if step:
            value = math.floor(value / step) * step
            value = value + step if value < low else value
        return round(value) if whole or value == int(value) else value


def _bounds(schema: dict[str, Any], step: float) -> tuple[float, float]:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    under, over = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if isinstance(under, int | float) and not isinstance(under, bool):
        low = max(low, under + step)
    if isinstance(over, int | float) and not isinstance(over, bool):
        high = min(high, over - step)
    return low, high


def _merge(one: Any, other: Any) -> dict[str, Any]:
    """Two schemas that must both hold, roughly: the validator has the last word."""
    if other is True or not isinstance(other, dict):
        return dict(one) if isinstance(one, dict) else {}
    if not isinstance(one, dict):
        return dict(other)
    merged = dict(one)
    for key, value in other.items():
        if key == "properties" and key in merged:
            merged[key] = {**merged[key], **value}
        elif key == "required" and key in merged:
            merged[key] = [*merged[key], *(name for name in value if name not in merged[key])]
        elif key in {"minimum", "exclusiveMinimum", "minLength", "minItems"} and key in merged:
            merged[key] = max(merged[key], value)
        elif key in {"maximum", "exclusiveMaximum", "maxLength", "maxItems"} and key in merged:
            merged[key] = min(merged[key], value)
        elif key == "type" and isinstance(merged.get(key), list) and isinstance(value, list):
            merged[key] = [kind for kind in merged[key] if kind in value]
        else:
            merged[key] = value
    return merged
