from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dabom.client import analysis_schema
from dabom.errors import ClientError
from dabom.reader.documents import write_document
from dabom.reader.findings import Caption, Heard, Light, Span, Watched
from dabom.reader.patterns import example_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dabom.reader.findings import Finding

LIGHT = Light(0.4, 0.3, 200.0, [("blue", 0.6), ("grey", 0.3)], black=False, blank=False)
HEARD = Heard(6.0, 16000, 1, "aac", True, -22.0, -4.0, 0.1, [], [Span(0.4, 5.6)], None)
SEEN = Watched(
    6.0, 640, 360, 25.0, 150, 12, LIGHT, 0, [3.2], 0.2,
    [Caption("서울 첫눈", 0.0, 3.2, (10, 290, 390, 330), 96.0)], True, True, True, True, HEARD,
)  # fmt: skip


def write(schema: Any, findings: Sequence[Finding] = (SEEN,), language: str = "ko") -> Any:
    document = json.loads(write_document(json.dumps(schema).encode(), findings, language))
    jsonschema.Draft202012Validator(schema).validate(document)
    return document


def obj(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def test_the_four_fields_of_a_clip() -> None:
    document = write(analysis_schema())
    assert document["on_screen_text"] == "서울 첫눈"
    assert "파랑" in document["scene"]
    assert "말소리" in document["speech"]
    assert "dBFS" in document["sound"]


def test_without_media_the_fields_are_empty() -> None:
    assert write(analysis_schema(), ()) == dict.fromkeys(("scene", "on_screen_text", "speech", "sound"), "")
    nullable = obj(
        speech={"type": ["string", "null"]}, duration={"anyOf": [{"type": "number"}, {"type": "null"}]}
    )
    assert write(nullable, ()) == {"speech": None, "duration": None}


def test_json_object_without_a_schema() -> None:
    document = json.loads(write_document(None, [SEEN], "en"))
    assert set(document) == {"scene", "on_screen_text", "speech", "sound"}
    assert "blue" in document["scene"]


def test_measured_values_go_where_names_and_descriptions_say() -> None:
    document = write(
        obj(
            durationSeconds={"type": "number"},
            width={"type": "integer"},
            captions={"type": "array", "items": {"type": "string"}},
            cuts={"type": "array", "items": {"type": "number"}},
            has_speech={"type": "boolean"},
            x={"type": "string", "description": "화면에 보이는 글자"},
            colours={"type": "array", "items": {"enum": ["red", "blue"]}},
            mood={"type": "string"},
        )
    )
    assert document["durationSeconds"] == 6.0
    assert document["width"] == 640
    assert document["captions"] == ["서울 첫눈"]
    assert document["cuts"] == [3.2]
    assert document["has_speech"] is True
    assert document["x"] == "서울 첫눈"
    assert document["colours"] == ["blue"]
    assert document["mood"] == ""


NODE = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}
ODD = [
    True,
    {},
    {"type": "string", "minLength": 40, "maxLength": 41},
    {"type": "string", "pattern": r"^[A-Z]{3}-\d{4}$"},
    {"type": "string", "pattern": r"^(가|나){2,3}[^0-9]+\w*$"},
    {"type": "string", "format": "date-time"},
    {"enum": [3, None, "x"]},
    {"const": {"a": [1, 2]}},
    {"type": "integer", "exclusiveMinimum": 3, "maximum": 9, "multipleOf": 4},
    {"type": "number", "minimum": -2.5, "maximum": -2.25},
    {"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}], "minItems": 2, "items": False},
    {"type": "array", "contains": {"const": 7}},
    {"type": "object", "minProperties": 2, "additionalProperties": {"type": "boolean"}},
    {"type": "object", "required": ["a", "b"]},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": False}},
    {"allOf": [{"type": "object", "required": ["a"]}, {"properties": {"a": {"minimum": 5, "maximum": 6}}}]},
    {"oneOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1}]},
    {"$defs": {"node": NODE}, "$ref": "#/$defs/node"},
    {"$id": "https://x.invalid/s", "$defs": {"t": {"const": 1}}, "properties": {"a": {"$ref": "#/$defs/t"}}},
    {"type": ["null", "integer"]},
    {"not": {"type": "string"}},
    {"if": {"type": "string"}, "then": {"minLength": 3}},
    {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "maxProperties": 1},
]  # fmt: skip


@pytest.mark.parametrize("schema", ODD, ids=lambda schema: json.dumps(schema, ensure_ascii=False)[:60])
def test_odd_schemas_get_a_valid_document(schema: Any) -> None:
    write(schema)
    if "$ref" not in json.dumps(schema):
        write(obj(inner=schema), ())


LOOP = {"$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}}}
IMPOSSIBLE = [
    False,
    {"type": "nonsense"},
    {"type": "string", "minLength": 5, "maxLength": 4},
    {"type": "integer", "minimum": 5, "maximum": 4},
    {"$ref": "https://example.invalid/schema.json"},
    {"$ref": "#/$defs/missing"},
    {"$ref": "#"},
    {"allOf": [{"$ref": "#/allOf/0"}]},
    {**LOOP, "$ref": "#/$defs/a"},
    {"type": "string", "pattern": "("},
    {"type": "array", "minItems": 10**9},
    {"type": "string", "minLength": 10**9},
    {"type": "string", "pattern": "a{1000000}"},
]


@pytest.mark.parametrize("schema", IMPOSSIBLE, ids=lambda schema: json.dumps(schema)[:60])
def test_schemas_that_cannot_be_served_are_refused(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: object, **__: object) -> None:
        raise AssertionError("a schema made the reader open an address")

    monkeypatch.setattr(urllib.request, "urlopen", fetch)
    with pytest.raises(ClientError, match="cannot be served") as caught:
        write_document(json.dumps(schema).encode(), [SEEN], "ko")
    assert caught.value.param == "response_format"


LEAVES = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "minLength": 2, "maxLength": 5},
        {"type": "number", "minimum": 0.5},
        {"type": "integer", "maximum": -3},
        {"type": "boolean"},
        {"type": "null"},
        {"enum": ["a", "b"]},
        {"const": 5},
    ]
)
NAMES = st.sampled_from(["scene", "speech", "자막", "duration", "items", "x"])
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(
            lambda properties, required, closed: {
                "type": "object",
                "properties": properties,
                "required": sorted(properties)[:required],
                **({"additionalProperties": False} if closed else {}),
            },
            st.dictionaries(NAMES, inner, max_size=4),
            st.integers(0, 4),
            st.booleans(),
        ),
        st.builds(
            lambda items, least: {"type": "array", "items": items, "minItems": least},
            inner,
            st.integers(0, 3),
        ),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SCHEMAS)
def test_any_plain_schema_gets_a_valid_document(schema: dict[str, Any]) -> None:
    write(schema)


@pytest.mark.parametrize(
    "pattern", ["^a+$", "[0-9]{3}", r"\w+@\w+\.kr", "(?:x|y)z?", "^$", r"^\S{2,}\s\D$", "가.나"]
)
def test_a_text_for_a_pattern(pattern: str) -> None:
    assert example_of(pattern) is not None


@pytest.mark.parametrize("pattern", ["(", "(?<=a)b(?=c)d", "a{5000}"])
def test_no_text_for_what_is_not_covered(pattern: str) -> None:
    assert example_of(pattern) is None
