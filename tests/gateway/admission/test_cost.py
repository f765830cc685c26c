"""What a request costs, by its facts; what can never fit."""

from __future__ import annotations

from typing import Any

import pytest

from dabom.errors import PromptTooLong
from dabom.families import FAMILIES, Options
from dabom.gateway import UpstreamSettings
from dabom.gateway.admission import Claim, Meter, Priority
from dabom.gateway.facts import Facts, Message
from dabom.gateway.parts import Media
from dabom.media import MediaFacts

_PICTURE = Media("image", "image/png", 1000, "", 1344, 1344)
_CLIP = Media("video", "video/mp4", 1_700_000)
_CLIP_FACTS = MediaFacts("video", "video/mp4", 640, 360, frames=60, fps=10.0, seconds=6.0)
_SOUND = Media("audio", "audio/wav", 192_044)
_SOUND_FACTS = MediaFacts("audio", "audio/wav", seconds=6.0, audio_samples=96_000, audio_rate=16_000)


def _meter(**settings: Any) -> Meter:
    return Meter("one", UpstreamSettings(url="http://127.0.0.1:1/v1", **settings), 1024)


def test_text_is_estimated_from_above_by_its_bytes() -> None:
    korean = "이 영상에서 무엇이 보이는지 자세히 설명하고, 자막과 음성이 서로 일치하는지 확인해 주세요."
    facts = Facts(text_bytes=len(korean.encode()), messages=(Message("user"),), max_tokens=100)
    cost = _meter().cost(facts)
    assert 27 <= cost.prompt_tokens - 6 <= 2 * 27  # 27 with the vocabulary of Qwen
    assert (cost.answer_tokens, cost.tokens) == (100, cost.prompt_tokens + 100)
    assert cost.predicted is None, "without a family nothing is predicted"


@pytest.mark.parametrize(("family", "pads"), [("qwen3-vl", 1764), ("qwen2.5-vl", 2304)])
def test_media_are_counted_exactly_by_the_family(family: str, pads: int) -> None:
    cost = _meter(family=family).cost(Facts(media=(_PICTURE,)))
    assert cost.prompt_tokens == 6 + pads + 2
    assert (cost.exact, cost.known, cost.predicted) == (True, True, cost.prompt_tokens)
    assert [part.name for part in cost.parts] == ["text", "image 1", "answer"]


def test_a_clip_is_counted_by_its_headers_and_by_what_the_request_asks_for() -> None:
    meter = _meter(model="Qwen/Qwen3-VL-8B-Instruct")
    cost = meter.cost(Facts(media=(_CLIP,)), [_CLIP_FACTS])
    assert cost.prompt_tokens == 6 + 1370
    twice = meter.cost(Facts(media=(_CLIP,), options=Options(fps=4.0)), [_CLIP_FACTS])
    assert 1.9 < (twice.prompt_tokens - 6) / 1370 < 2.1


def test_a_sound_that_the_family_hears() -> None:
    cost = _meter(family="qwen3-omni").cost(Facts(media=(_SOUND,)), [_SOUND_FACTS])
    assert cost.prompt_tokens == 6 + FAMILIES["qwen3-omni"].audio(96_000, 16_000).prompt_tokens
    assert cost.exact


def test_unknown_families_and_unknown_media_are_estimated_high() -> None:
    media = (_PICTURE, _CLIP, _SOUND, Media("file"), Media("image", remote=True))
    for meter in (_meter(), _meter(family="qwen3-vl")):
        cost = meter.cost(Facts(media=media))
        tokens = [part.tokens for part in cost.parts[2:6]]
        assert tokens[0] >= 1370
        assert tokens[2] > 0
        assert tokens[3] >= 1764
        assert not cost.exact
    assert _meter().cost(Facts(media=(_CLIP,)), [_CLIP_FACTS]).prompt_tokens == 6 + 1370


def test_the_servers_own_limit_for_pictures_holds() -> None:
    cost = _meter(family="qwen3-vl", max_pixels=1_003_520).cost(Facts(media=(_PICTURE,)))
    assert cost.prompt_tokens - 8 == 961  # 992 x 992


def test_several_answers_share_one_prompt() -> None:
    cost = _meter().cost(Facts(max_tokens=100, choices=3))
    assert cost.answer_tokens == 300
    assert cost.claim(Priority.BATCH, "k") == Claim(cost.tokens, Priority.BATCH, "k")
    _meter(max_model_len=120).check(cost)
    with pytest.raises(PromptTooLong):
        _meter(token_budget=299).check(cost)


def test_what_can_never_fit_is_refused_with_the_numbers() -> None:
    meter = _meter(family="qwen3-vl", max_model_len=2048)
    with pytest.raises(PromptTooLong) as refusal:
        meter.check(meter.cost(Facts(media=(_PICTURE, _CLIP), max_tokens=512), [None, _CLIP_FACTS]))
    assert refusal.value.numbers == {"needed": 1766 + 1370 + 512, "limit": 2048, "largest": "image 1"}
    assert refusal.value.message == (
        "the request needs at least 3,648 tokens, prompt and answer; upstream one cannot take it: "
        "its model takes 2,048; the largest part is image 1 with 1,766; send a smaller picture"
    )
    assert refusal.value.body()["error"]["needed"] == 3648


@pytest.mark.parametrize(
    ("facts", "advice"),
    [
        (Facts(text_bytes=200_000), "about 66,673; shorten the text"),
        (Facts(media=(_CLIP,)), "a shorter or smaller clip, or ask for fewer frames"),
        (Facts(max_tokens=8192), "ask for fewer max_tokens"),
    ],
)
def test_the_advice_is_for_the_largest_part(facts: Facts, advice: str) -> None:
    meter = _meter(family="qwen3-vl", token_budget=1000)
    with pytest.raises(PromptTooLong, match=advice) as refusal:
        meter.check(meter.cost(facts, [_CLIP_FACTS]))
    assert "its token budget is 1,000" in refusal.value.message


def test_an_estimate_alone_refuses_nothing() -> None:
    meter = _meter(max_model_len=2048, token_budget=2048)
    for facts in (Facts(text_bytes=12_000), Facts(media=(_PICTURE, _CLIP, _SOUND))):
        meter.check(meter.cost(facts))


def test_family_and_length_are_learned_from_the_upstream() -> None:
    meter = _meter()
    assert _meter().family is None
    meter.learn(["lora", "Qwen/Qwen2.5-VL-7B-Instruct"], 32_768)
    learned = (meter.family, meter.max_model_len)
    assert learned == (FAMILIES["qwen2.5-vl"], 32_768)
    meter.learn([], None)
    learned = (meter.family, meter.max_model_len)
    assert learned == (None, None)
    told = _meter(family="qwen3-vl", max_model_len=4096)
    told.learn(["Qwen/Qwen2.5-VL-7B-Instruct"], 32_768)
    assert (told.family, told.max_model_len) == (FAMILIES["qwen3-vl"], 4096)
