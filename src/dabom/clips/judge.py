"""What the answers about controls claim: to see on a black picture, to hear speech on a silent clip.

A rule by words, Korean and English: it finds a model that describes what is not there, not one that is wrong
about what is. The reader's words are fixed, so that the rule is exact for it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

CLAIMS = {"blackout": "sees", "freeze": "", "mute": "hears_speech", "swap-audio": ""}
"""What an answer about a control of each kind must not claim; nothing where no claim can be wrong."""

_BLACK = re.compile(
    r"검은|검정|까만|까맣|깜깜|캄캄|암전|블랙|흑색|어두운 화면|화면이 (?:없|꺼)|아무것도 (?:보이지|없)"
    r"|(?:시각|영상) ?정보(?:가|는)? ?없"
    r"|\bblack\b|\bdark\b|\bblank\b|nothing (?:is |can be )?(?:visible|seen)",
    re.IGNORECASE,
)
_NOTHING = re.compile(
    r"^\W*(?:없음|없다|없습니다|해당 ?(?:사항 ?)?없음|알 수 없음|보이지 않음|확인 불가"
    r"|n/?a|none|null|nothing)\W*$",
    re.IGNORECASE,
)
_NO_SPEECH = re.compile(
    r"^\W*(?:silence|silent|무음)\W*$"
    r"|(?:말|말소리|음성|대사|발화|목소리|대화|소리)(?:은|는|이|가|도)?\s*"
    r"(?:없|들리지 ?않|감지되지 ?않|확인되지 ?않)"
    r"|\bno (?:audible |clear |spoken )?(?:speech|voices?|dialogue|words|audio|sound)\b",
    re.IGNORECASE,
)
_SPEECH = re.compile(
    r"음성|말소리|목소리|대화|발화|대사|말하|중계|앵커|내레이션|speech|voice|spoken|speak|says", re.IGNORECASE
)


def says_black(text: str) -> bool:
    """The text calls the picture black, dark or empty."""
    return bool(_BLACK.search(text))


def claims_to_see(value: Any, text: str) -> bool:
    """The answer describes a picture: it reads text off it, or tells a scene and not that it is black."""
    if isinstance(value, dict) and isinstance(value.get("scene"), str):
        shown = str(value.get("on_screen_text") or "")
        return _tells(shown) or (_tells(value["scene"]) and not says_black(value["scene"]))
    return _tells(text) and not says_black(text)


def claims_speech(value: Any, text: str) -> bool:
    """The answer says that somebody speaks."""
    if isinstance(value, dict) and isinstance(value.get("speech"), str):
        return _tells(value["speech"]) and not _NO_SPEECH.search(value["speech"])
    return bool(_SPEECH.search(text)) and not _NO_SPEECH.search(text)


def judge(control: str, value: Any, text: str) -> bool | None:
    """Whether the answer about a control claims what is not there; None when that cannot be judged."""
    match CLAIMS.get(control):
        case "sees":
            return claims_to_see(value, text)
        case "hears_speech":
            return claims_speech(value, text)
    return None


def _tells(text: str) -> bool:
    return bool(text.strip()) and not _NOTHING.match(text)


@dataclass(frozen=True, slots=True)
class Rate:
    """So many of so many, with the 95 % interval of the rate."""

    count: int
    total: int

    @property
    def share(self) -> float | None:
        """None of nothing."""
        return self.count / self.total if self.total else None

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's: it holds for few and for extreme rates too."""
        return wilson(self.count, self.total)


def wilson(count: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """The score interval of a rate; everything is possible of nothing. Wilson 1927; no correction."""
    if not total:
        return 0.0, 1.0
    share, spread = count / total, z * z / total
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    return (0.0 if not count else middle - half), (1.0 if count == total else middle + half)


def rate(judged: Iterable[bool]) -> Rate:
    """The rate of what is true."""
    found = list(judged)
    return Rate(sum(found), len(found))
