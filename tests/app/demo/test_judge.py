from __future__ import annotations

import json

import pytest

from dabom.app.demo.judge import judge, shorten
from dabom.client import Answer


def _answer(text: str) -> Answer:
    return Answer(text, "id", "m", "stop", None, "", [], text.encode())


def _strict(scene: str, speech: str) -> Answer:
    return _answer(json.dumps({"scene": scene, "on_screen_text": "", "speech": speech, "sound": ""}))


@pytest.mark.parametrize(
    ("answer", "black", "speech"),
    [
        (_strict("화면이 전부 검은색이다.", "남성 두 명이 대화한다."), True, True),
        (_strict("A black screen.", "A man says MVP."), True, True),
        (_strict("앵커가 말한다.", "말소리 0.3-6.0초"), False, True),
        (_strict("검은 화면", "대사는 없다."), True, False),
        (_strict("검은 화면", "No speech is heard."), True, False),
        (_strict("검은 화면", " N/A "), True, False),
        (_answer("검은색 배경만 존재합니다. 음성은 한국어로 되어 있으며 두 남성이 대화합니다."), True, True),
        (_answer("A dark picture without any sound."), True, False),
    ],
)
def test_black_and_speech_are_read_from_fields_or_words(answer: Answer, black: bool, speech: bool) -> None:
    finding = judge(answer)
    assert (finding.black, finding.speech) == (black, speech)


def test_language_and_form_are_told_apart() -> None:
    assert judge(_strict("장면", "")).korean
    assert judge(_strict("장면", "")).strict
    assert not judge(_answer("just words")).korean
    assert not judge(_answer("just words")).strict


def test_shorten_keeps_one_line() -> None:
    assert shorten("a\n b", 10) == "a b"
    assert shorten("가" * 20, 5) == "가가가가…"
