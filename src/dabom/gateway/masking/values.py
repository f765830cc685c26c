"""Masking of decoded JSON: every text of an answer, but not the names and ids that programs read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dabom.gateway.masking.text import mask_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dabom.gateway.masking.detect import Detector
    from dabom.gateway.masking.text import Found

_STRUCTURE = frozenset(
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
_TELLING = frozenset({"logprobs", "prompt_logprobs", "token_ids", "prompt_token_ids"})
"""The same text once more, token by token; left out of a masked answer."""
_CODE = frozenset({"arguments", "partial_json"})


def mask_value(value: Any, detectors: Sequence[Detector], found: Found) -> bool:
    """Mask all texts inside a list or mapping, in place; whether anything changed."""
    changed = False
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in list(entries):
        if name in _TELLING and inner:
            value[name], changed = None, True
        elif isinstance(inner, dict | list):
            changed |= name not in _STRUCTURE and mask_value(inner, detectors, found)
        elif isinstance(inner, str) and name not in _STRUCTURE:
            masked = mask_text(inner, detectors, found, code=name in _CODE)
            if masked is not inner:
                value[name], changed = masked, True
    return changed
