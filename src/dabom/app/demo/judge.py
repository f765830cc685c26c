"""Decide from an answer whether a black picture was seen and speech was heard.

The reader's words are fixed, so that these rules are exact for it. For any other model they are a check by
keyword: it tells that the sound reached the model, not that the answer is good.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dabom.client import AnalysisResult, Answer
from dabom.errors import AnswerBroken

_BLACK = re.compile(
    r"검은|검정|까만|깜깜|암전|블랙|흑색|어두운 화면|\bblack\b|\bdark\b|\bblank\b", re.IGNORECASE
)
_NO_SPEECH = re.compile(
    r"^\W*(없음|없다|없습니다|해당 없음|n/?a|none|null|silence|silent|무음)\W*$"
    r"|(말|말소리|음성|대사|발화|목소리|대화)\s*(은|는|이|가|도)?\s*(없|들리지 않|감지되지 않)"
    r"|\bno (audible |clear )?(speech|voices?|dialogue|words)\b",
    re.IGNORECASE,
)
_SPEECH = re.compile(
    r"음성|말소리|목소리|대화|발화|대사|말하|중계|speech|voice|spoken|speak|says", re.IGNORECASE
)
_HANGUL = re.compile(r"[가-힣]")


@dataclass(frozen=True, slots=True)
class Finding:
    """What an answer says of a clip."""

    text: str
    speech_text: str
    black: bool
    speech: bool
    korean: bool
    strict: bool


def judge(answer: Answer) -> Finding:
    """Read an answer: the four fields when it holds to the schema, else the whole text by keyword."""
    try:
        result = answer.parse(AnalysisResult)
    except AnswerBroken:
        text = answer.text
        speech = bool(_SPEECH.search(text)) and not _NO_SPEECH.search(text)
        return Finding(
            text, text, bool(_BLACK.search(text)), speech, bool(_HANGUL.search(text)), strict=False
        )
    spoken = result.speech.strip()
    return Finding(
        text=result.scene,
        speech_text=spoken,
        black=bool(_BLACK.search(result.scene)),
        speech=bool(spoken) and not _NO_SPEECH.search(spoken),
        korean=bool(_HANGUL.search(result.scene)),
        strict=True,
    )


def shorten(text: str, limit: int = 60) -> str:
    """The start of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
