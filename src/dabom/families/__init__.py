"""Facts about model families as pure functions: what a picture, a clip and a sound cost, in tokens.

Measured on vLLM 0.32 with transformers 5.19; docs/tokens.md says what is counted and what is not.
"""

from __future__ import annotations

import re

from dabom.families.facts import Cost, Edges, Kind, Options, Refusal, Step, VideoFacts
from dabom.families.family import Family
from dabom.families.files import read_files
from dabom.families.limits import QWEN2_VL, QWEN3_OMNI, QWEN3_VL, QWEN25_OMNI, Limits
from dabom.families.options import read_options
from dabom.families.resize import Size, patch14_tokens, picture_size
from dabom.families.sound import QWEN3, QWEN25
from dabom.families.words import sentence

__all__ = [
    "FAMILIES",
    "Cost",
    "Edges",
    "Family",
    "Kind",
    "Limits",
    "Options",
    "Refusal",
    "Size",
    "Step",
    "VideoFacts",
    "find",
    "patch14_tokens",
    "picture_size",
    "read_files",
    "read_options",
    "sentence",
]

FAMILIES = {
    family.name: family
    for family in (
        Family("qwen2-vl", QWEN2_VL),
        Family("qwen2.5-vl", QWEN2_VL),
        Family("qwen3-vl", QWEN3_VL, whole_clip=True),
        Family("qwen2.5-omni", QWEN25_OMNI, hearing=QWEN25),
        Family("qwen3-omni", QWEN3_OMNI, hearing=QWEN3),
    )
}
"""Every family with the limits of its shipped checkpoints."""

_SEPARATORS = re.compile(r"[^a-z0-9]")
_PLAIN = {_SEPARATORS.sub("", name): family for name, family in FAMILIES.items()}


def find(name: str) -> Family | None:
    """The family of that name, or of a model so called (`Qwen/Qwen3-VL-8B-Instruct`); None when unknown."""
    plain = _SEPARATORS.sub("", name.rpartition("/")[2].lower())
    return next((family for key, family in _PLAIN.items() if key in plain), None)
