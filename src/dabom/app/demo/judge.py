"""Decide from an answer whether a black picture was seen and speech was heard.

The reader's words are fixed, so that these rules are exact for it. For any other model they are a check by
keyword: it tells that the sound reached the model, not that the answer is good.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dabom.client import AnalysisResult, Answer
from dabom.clips.judge import claims_speech, says_black
from dabom.errors import AnswerBroken

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
        speech = claims_speech(None, text)
        return Finding(text, text, says_black(text), speech, bool(_HANGUL.search(text)), strict=False)
    return Finding(
        text=result.scene,
        speech_text=result.speech.strip(),
        black=says_black(result.scene),
        speech=claims_speech({"speech": result.speech}, ""),
        korean=bool(_HANGUL.search(result.scene)),
        strict=True,
    )


def shorten(text: str, limit: int = 60) -> str:
    """The start of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
