"""A JSON document for any schema, filled from what was measured, and checked before it is given."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import specification_with

from dabom.errors import ClientError
from dabom.reader.filling import Filler, Unfillable
from dabom.reader.topics import measure_topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dabom.reader.findings import Finding

_DEFAULT = {
    "type": "object",
    "properties": {
        name: {"type": ["string", "null"]} for name in ("scene", "on_screen_text", "speech", "sound")
    },
    "required": ["scene", "on_screen_text", "speech", "sound"],
}


def write_document(schema: bytes | None, findings: Sequence[Finding], language: str) -> str:
    """JSON text that is valid under `schema`; without one, the seed's four fields.

    Raises ClientError when the schema is no schema, or no valid document could be made for it.
    """
    wanted = _read_schema(schema)
    kind = validator_for(wanted, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(wanted)
        # An empty registry: a reference to an outside address is an error and is never fetched.
        validator = kind(wanted, registry=Registry())
        filler = Filler(measure_topics(findings, language), validator, _resolver(wanted, kind))
        document = filler.fill(wanted)
        problem = next(validator.iter_errors(document), None)
    except jsonschema.SchemaError as fault:
        raise _refuse(f"it is not a valid JSON schema: {fault.message[:200]}") from fault
    except (Unfillable, Unresolvable, RecursionError) as fault:
        raise _refuse(f"no valid document could be made for it ({type(fault).__name__})") from fault
    if problem is not None:
        raise _refuse(f"no valid document could be made for its rule `{problem.validator}`")
    return json.dumps(document, ensure_ascii=False)


def _read_schema(schema: bytes | None) -> Any:
    if schema is None:
        return _DEFAULT
    try:
        found = json.loads(schema)
    except (ValueError, RecursionError) as fault:
        raise _refuse("it is not JSON") from fault
    if not isinstance(found, dict | bool):
        raise _refuse("it is neither an object nor a boolean")
    return found


def _resolver(wanted: Any, kind: Any) -> Any:
    resource = specification_with(kind.META_SCHEMA["$schema"]).create_resource(wanted)
    name = resource.id() or ""
    return Registry().with_resource(name, resource).resolver(name)


def _refuse(why: str) -> ClientError:
    return ClientError(f"response_format.json_schema cannot be served: {why}", param="response_format")
