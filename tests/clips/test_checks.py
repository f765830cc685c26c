from __future__ import annotations

import json

import pytest

from dabom.client import analysis_schema
from dabom.clips.checks import (
    Answered,
    check,
    check_tokens,
    foreign_share,
    repeats,
    same_as_neighbour,
    strip_leak,
)

GOOD = {
    "scene": "앵커가 뉴스 스튜디오 책상에 앉아 오늘의 날씨를 전하고 있다.",
    "on_screen_text": "서울 첫눈",
    "speech": "오늘 아침 서울에 첫눈이 내렸습니다.",
    "sound": "",
}
SCHEMA = analysis_schema()


def codes(answer: object, **more: object) -> tuple[str, ...]:
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return check(Answered(text, **more), SCHEMA).codes  # type: ignore[arg-type]


def test_a_good_answer_has_no_code() -> None:
    found = check(Answered(json.dumps(GOOD)), SCHEMA)
    assert (found.codes, found.failure, found.value) == ((), "", GOOD)


@pytest.mark.parametrize("text", ["", " \n", json.dumps(dict.fromkeys(GOOD, " "))])
def test_nothing_said_is_empty(text: str) -> None:
    assert codes(text) == ("empty",)


def test_an_answer_cut_at_its_length_tells_that_first() -> None:
    found = check(Answered(json.dumps(GOOD)[:60], "length"), SCHEMA)
    assert (found.codes, found.failure) == (("cut_at_length", "invalid_schema"), "cut_at_length")


@pytest.mark.parametrize(
    "answer",
    [
        "영상은 뉴스입니다.",
        {**GOOD, "more": ""},
        {name: text for name, text in GOOD.items() if name != "sound"},
        {**GOOD, "scene": "가나다라" * 400},
        [GOOD],
        {**GOOD, "sound": None},
    ],
)
def test_what_does_not_hold_to_the_schema_is_invalid(answer: object) -> None:
    assert "invalid_schema" in codes(answer)


@pytest.mark.parametrize(
    "head", ["assistant\n", "assistant>\n", "assistant: ", " <|im_start|>assistant\n", "<|im_start|>"]
)
def test_a_leak_is_stripped_and_told(head: str) -> None:
    text = json.dumps(GOOD)
    found = check(Answered(f"{head}{text}<|im_end|>"), SCHEMA)
    assert (found.text, found.codes, found.failure) == (text, ("template_leak",), "")


@pytest.mark.parametrize(
    "text", ["assistant 역할을 맡은 사람", "assistants: 셋", "이 assistant\n는", '{"a": 1}']
)
def test_a_word_is_no_leak(text: str) -> None:
    assert strip_leak(text) == (text, False)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("画面中有一位主持人正在播报新闻节目内容并且微笑着说话", 1, 1),
        ("メインキャスターがニュースを読んでいますとてもきれい", 1, 1),
        ("Ведущий сидит за столом в студии", 1, 1),
        ("앵커가 뉴스를 전한다 主持人正在播报新闻节目内容并且微笑", 0.4, 0.8),
        (GOOD["scene"], 0, 0),
        ("A news anchor sits at a desk in a studio, naïve café", 0, 0),
        ("漢字", 0, 0),
    ],
)
def test_the_share_of_foreign_letters(text: str, least: float, most: float) -> None:
    assert least <= foreign_share(text) <= most


def test_foreign_script_fails_but_not_where_it_was_read_off_the_screen() -> None:
    chinese = "画面中有一位主持人正在播报新闻节目内容并且微笑着说话"
    assert codes({**GOOD, "scene": chinese}) == ("foreign_script",)
    assert codes({**GOOD, "on_screen_text": chinese}) == ()


@pytest.mark.parametrize("text", ["뉴스를 전한다. " * 8, "가" * 60, "아나운서가 " * 20 + "말한다", "-" * 48])
def test_what_loops_repeats(text: str) -> None:
    assert repeats(text)
    assert "repetition" in codes({**GOOD, "on_screen_text": text})


@pytest.mark.parametrize(
    "text", ["하하하하하하", "뉴스를 전한다. " * 5, GOOD["scene"], "=" * 40, " ".join(map(str, range(100)))]
)
def test_what_is_said_a_few_times_does_not(text: str) -> None:
    assert not repeats(text)


def test_white_space_without_end_repeats() -> None:
    assert codes(json.dumps(GOOD)[:-1] + " " * 60) == ("invalid_schema", "repetition")


OMNI = {"video": 1401, "audio": 1401}


@pytest.mark.parametrize(
    ("sound", "predicted", "tokens", "expected"),
    [
        (True, OMNI, OMNI, []),
        (True, OMNI, None, ["sound_unproven"]),
        (True, OMNI, {"video": 1320}, ["sound_missing"]),
        (True, {}, {"video": 1320, "audio": 0}, ["sound_missing"]),
        (True, OMNI, {"video": 1400, "audio": 1400}, ["sound_unlike"]),
        (True, {}, {"video": 7, "audio": 7}, []),
        (False, {"video": 1320}, {"video": 1320}, []),
        (False, {"video": 1320}, {"video": 12240}, ["picture_unlike"]),
        (False, {"video": 1320}, None, []),
        (True, {"audio": 78}, {"image": 2640, "audio": 78}, []),
    ],
)
def test_tokens_prove_that_the_sound_was_used(
    sound: bool, predicted: dict[str, int], tokens: dict[str, int] | None, expected: list[str]
) -> None:
    assert list(check_tokens(Answered("x", "stop", sound, predicted, tokens))) == expected


def test_any_schema_can_be_checked() -> None:
    schema = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    assert check(Answered('{"count": 3}'), schema).codes == ()
    assert check(Answered('{"count": "3"}'), schema).codes == ("invalid_schema",)


def test_neighbours_that_say_the_same() -> None:
    assert same_as_neighbour([]) == []
    assert same_as_neighbour(["a"]) == [False]
    assert same_as_neighbour(["a", "a ", "b", "a", "", ""]) == [True, True, False, False, False, False]
