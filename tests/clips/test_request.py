from __future__ import annotations

import base64
import io
import json
import wave
from pathlib import Path
from typing import Any

import pytest

from dabom.client import analysis_schema
from dabom.clips.plan import RunSettings, family_name, stored_settings
from dabom.clips.request import Asked, ask_about
from dabom.errors import InvalidMedia
from dabom.media import picture_size

CLIP = Path(__file__).parents[2] / "samples/clips/news/broadcast/0001_0000-0006.mp4"


async def asked(**settings: Any) -> tuple[Asked, dict[str, Any]]:
    found = await ask_about(CLIP.read_bytes(), RunSettings("m", **settings), 5, 77)
    return found, json.loads(found.request.body)


async def test_the_request_is_the_one_of_the_article_with_the_rate_in_both_places() -> None:
    found, body = await asked(family="qwen3-omni")
    media, text = body["messages"][0]["content"]
    head, _, data = media["video_url"]["url"].partition(",")
    assert head == "data:video/mp4;base64"
    assert base64.b64decode(data) == CLIP.read_bytes()
    assert text["text"].startswith("이 영상의 시각과 음성을")
    assert body["media_io_kwargs"] == {"video": {"fps": 2.0}}
    assert body["mm_processor_kwargs"] == {"use_audio_in_video": True, "fps": 2.0}
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert (body["temperature"], body["seed"], body["max_tokens"]) == (0.3, 5, 77)
    strict = body["response_format"]["json_schema"]
    assert (strict["strict"], strict["schema"]) == (True, analysis_schema())
    # 12 frames of 640 x 360 and 6 s of sound, as docs/tokens.md counts
    assert found.sound
    assert found.predicted["video"] == found.predicted["audio"] > 1320


async def test_a_family_without_ears_is_not_asked_to_hear() -> None:
    found, body = await asked(family="qwen3-vl")
    assert "mm_processor_kwargs" not in body
    assert (found.sound, set(found.predicted)) == (False, {"video"})


async def test_an_unknown_model_is_asked_as_omni_is_and_not_predicted() -> None:
    found, body = await asked()
    assert body["mm_processor_kwargs"] == {"use_audio_in_video": True, "fps": 2.0}
    assert (found.sound, found.predicted) == (True, {})
    _, silent = await asked(sound=False)
    assert "mm_processor_kwargs" not in silent


async def test_frames_and_a_wav_are_the_other_form() -> None:
    found, body = await asked(form="frames", family="qwen3-omni")
    parts = body["messages"][0]["content"]
    assert [part["type"] for part in parts] == ["image_url"] * 12 + ["input_audio", "text"]
    jpeg = base64.b64decode(parts[0]["image_url"]["url"].partition(",")[2])
    assert picture_size(jpeg) == (640, 360)
    with wave.open(io.BytesIO(base64.b64decode(parts[12]["input_audio"]["data"]))) as sound:
        assert (sound.getframerate(), sound.getnchannels()) == (16_000, 1)
        assert abs(sound.getnframes() / 16_000 - 6) < 0.1
    assert "media_io_kwargs" not in body
    assert found.predicted["audio"] in (78, 79)


@pytest.mark.parametrize(
    ("settings", "protocol"),
    [
        ({}, "interleaved"),
        ({"family": "qwen3-omni"}, "interleaved"),
        ({"family": "qwen3-vl"}, "video"),
        ({"sound": False}, "video"),
        ({"form": "frames"}, "separate"),
        ({"form": "frames", "sound": False}, "frames"),
    ],
)
def test_the_protocol_tells_how_sound_reaches_the_model(settings: dict[str, Any], protocol: str) -> None:
    assert RunSettings("m", **settings).protocol == protocol


def test_settings_come_back_from_a_store() -> None:
    settings = RunSettings("m", schema={"type": "object"}, controls=("mute",), form="frames", seed=3)
    assert stored_settings(json.loads(json.dumps(settings.stored()))) == settings
    assert settings.schema_sha256 != RunSettings("m").schema_sha256
    assert settings.prompt_sha256 == RunSettings("m").prompt_sha256


def test_the_family_of_a_model() -> None:
    assert family_name("Qwen/Qwen3-Omni-30B-A3B-Instruct") == "qwen3-omni"
    assert family_name("qwen") == ""


@pytest.mark.parametrize("content", [b"", b"no clip" * 100, b"\x89PNG\r\n\x1a\n" + bytes(60)])
async def test_what_is_no_clip_is_told(content: bytes) -> None:
    with pytest.raises(InvalidMedia):
        await ask_about(content, RunSettings("m"), 0, 9)
