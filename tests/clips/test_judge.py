from __future__ import annotations

import pytest

from dabom.clips.judge import Rate, judge, rate, wilson


def answer(scene: str = "", shown: str = "", speech: str = "") -> dict[str, str]:
    return {"scene": scene, "on_screen_text": shown, "speech": speech, "sound": ""}


@pytest.mark.parametrize(
    ("value", "text", "claims"),
    [
        (answer("처음부터 끝까지 검은 화면입니다."), "", False),
        (answer(""), "", False),
        (answer("없음"), "", False),
        (answer("화면에는 아무런 시각적 정보가 없으며, 오직 검은색 배경만 존재합니다."), "", False),
        (answer("The screen is black."), "", False),
        (answer("투수가 공을 던진다."), "", True),
        (answer("검은 화면", "3회말 2 : 1"), "", True),
        (answer("검은 화면", "없음"), "", False),
        (None, "화면은 암전 상태이며 해설이 들린다.", False),
        (None, "타자가 공을 친다.", True),
        (None, "", False),
    ],
)
def test_a_black_picture_is_seen_as_such_or_not(value: object, text: str, claims: bool) -> None:
    assert judge("blackout", value, text) is claims


@pytest.mark.parametrize(
    ("value", "text", "claims"),
    [
        (answer(speech=""), "", False),
        (answer(speech="없음"), "", False),
        (answer(speech="말소리가 들리지 않습니다."), "", False),
        (answer(speech="No audible speech."), "", False),
        (answer(speech="캐스터가 홈런이라고 외친다."), "", True),
        (None, "앵커가 날씨를 전하는 음성이 들린다.", True),
        (None, "음성이 없다.", False),
        (None, "눈이 내린다.", False),
    ],
)
def test_silence_is_heard_as_such_or_not(value: object, text: str, claims: bool) -> None:
    assert judge("mute", value, text) is claims


def test_where_no_claim_is_wrong_nothing_is_judged() -> None:
    assert judge("freeze", answer("x"), "x") is None
    assert judge("", answer("x"), "x") is None


@pytest.mark.parametrize(
    ("count", "total", "low", "high"),
    # Newcombe 1998, table I (method 3), and 0 of 100 by hand: z² / (n + z²)
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_is_the_published_one(count: int, total: int, low: float, high: float) -> None:
    assert wilson(count, total) == pytest.approx((low, high), abs=5e-5)
    assert wilson(total - count, total) == pytest.approx((1 - high, 1 - low), abs=5e-5)


def test_rates() -> None:
    assert rate([True, False, False, False]) == Rate(1, 4)
    assert Rate(1, 4).share == 0.25
    assert (Rate(0, 0).share, Rate(0, 0).interval) == (None, (0.0, 1.0))
    assert wilson(5, 5)[1] == 1.0
