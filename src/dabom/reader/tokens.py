"""How the reader counts tokens: its own rule, the same for prompt and answer.

Text is cut into pieces that, joined, are the text again: up to six Latin letters, up to three digits, up to
two Hangul syllables, or one other character, each with the white space before it. A piece is a token. Media
are counted by what was looked at: a picture one token for each 32 x 32 pixels, a video the same for each pair
of its sampled frames, sound one for each 80 ms.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from dabom.reader.findings import Heard, Watched

if TYPE_CHECKING:
    from dabom.reader.findings import Finding

_PIECE = re.compile(r"\s*(?:[A-Za-z]{1,6}|[0-9]{1,3}|[가-힣]{1,2}|\S)|\s+")
_PATCH_PX = 32
_SOUND_TOKEN_S = 0.08
_MAX_PATCHES = 16_384


def split(text: str) -> list[str]:
    """The pieces of a text; joined they are the text."""
    return _PIECE.findall(text)


def count(text: str) -> int:
    """Tokens of a text."""
    return sum(1 for _ in _PIECE.finditer(text))


def count_media(finding: Finding) -> int:
    """Tokens of one media part, sound included."""
    if isinstance(finding, Heard):
        return math.ceil(finding.duration_s / _SOUND_TOKEN_S)
    patches = min(_MAX_PATCHES, math.ceil(finding.width / _PATCH_PX) * math.ceil(finding.height / _PATCH_PX))
    if not isinstance(finding, Watched):
        return patches
    heard = count_media(finding.heard) if finding.heard else 0
    return math.ceil(finding.sampled / 2) * patches + heard
