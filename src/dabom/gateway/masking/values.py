"""Masking of decoded JSON: every text of an answer, but not the names and ids that programs read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dabom.gateway.masking.text import mask_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dabom.gateway.masking.detect import Detector
    from dabom.gateway.masking.text import Found

STRUCTURE = frozenset(
    {
        "id",
        "object",
        "model",
        "system_fingerprint",
        "service_tier",
        "finish_reason",
        "stop_reason",
        "role",
        "type",
        "status",
        "call_id",
        "item_id",
        "tool_call_id",
        "response_id",
        "encoding_format",
        "embedding",
        "b64_json",
    }
)
"""Names whose values nobody wrote, or that are no text."""
TELLING = frozenset({"logprobs", "prompt_logprobs", "token_ids", "prompt_token_ids"})
"""The same text once more, token by token; left out of a masked answer."""
_CODE = frozenset({"arguments", "partial_json"})
_FREE = frozenset({"input", "arguments"})
"""What the client or the model made up: inside, no name says what its value is."""
_BYTES = frozenset({"embedding", "b64_json"})
_FIELD = re.compile("[A-Za-z_]+")


def is_text(name: str) -> bool:
    """Whether a field of this name may hold a text that somebody wrote."""
    return name not in STRUCTURE and name not in TELLING and _FIELD.fullmatch(name) is not None


def is_code(name: str) -> bool:
    """Whether a field of this name holds JSON in a text."""
    return name in _CODE


def mask_value(value: Any, detectors: Sequence[Detector], found: Found, *, free: bool = False) -> bool:
    """Mask all texts inside a list or mapping, in place; whether anything changed.

    `free`: it is what a tool gets or what a client sent. There ids and bare numbers may be personal too.
    """
    changed = isinstance(value, dict) and _mask_names(value, detectors, found)
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in list(entries):
        if name in TELLING and inner and not free:
            value[name], changed = None, True
        elif isinstance(inner, dict | list):
            if name not in _BYTES:
                changed |= mask_value(inner, detectors, found, free=free or name in _FREE)
        elif isinstance(inner, str) and (free or name not in STRUCTURE):
            masked = mask_text(inner, detectors, found, code=name in _CODE)
            if masked is not inner:
                value[name], changed = masked, True
        elif (
            free
            and isinstance(inner, int)
            and (digits := str(inner)) != (masked := mask_text(digits, detectors, found, code=True))
        ):
            value[name], changed = int(masked), True
    return changed


def _mask_names(value: dict[str, Any], detectors: Sequence[Detector], found: Found) -> bool:
    """Mask the names of a mapping; those of letters alone are fields."""
    if all(map(_FIELD.fullmatch, value)):
        return False
    masked = {mask_text(name, detectors, found): inner for name, inner in value.items()}
    if masked.keys() == value.keys():
        return False
    value.clear()
    value.update(masked)
    return True
