from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dabom.client import (
    AnalysisResult,
    ClipOptions,
    Message,
    analysis_schema,
    clip_request,
    frames_request,
    image,
    request,
    schema_format,
    system,
    text,
    user,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_lone_text_is_a_plain_string() -> None:
    built = request([system("짧게."), user("안녕")], model="qwen", temperature=0.3, seed=None)
    assert json.loads(built.body) == {
        "model": "qwen",
        "messages": [{"role": "system", "content": "짧게."}, {"role": "user", "content": "안녕"}],
        "temperature": 0.3,
    }
    assert built.size == len(built.body)


def test_no_fields_and_turns_with_fields_of_their_own() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    built = request(
        [
            user("a"),
            Message("assistant", extra={"tool_calls": calls}),
            Message("tool", (text("7"),), {"tool_call_id": "c1"}),
        ]
    )
    assert json.loads(built.body)["messages"][1:] == [
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "7"},
    ]


@pytest.mark.parametrize("fields", [{}, {"model": "m"}, {"max_tokens": 4}])
async def test_streaming_shares_the_media_bytes(png: bytes, fields: dict[str, Any]) -> None:
    picture = await image(png)
    built = request(user(picture, "무엇?"), **fields)
    streamed = built.streamed()
    assert json.loads(streamed.body) == {
        **json.loads(built.body),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert any(piece is picture.json for piece in streamed.pieces)


def test_what_the_client_sets_is_no_field() -> None:
    with pytest.raises(TypeError):
        request(user("a"), stream=True)


def test_repr_shows_the_size_only() -> None:
    assert "비밀" not in repr(request(user("비밀")))


async def test_clip_request_is_the_seeds(mp4: bytes) -> None:
    body = json.loads((await clip_request(mp4, ClipOptions(model="qwen"))).body)
    content = body.pop("messages")[0]["content"]
    assert [part["type"] for part in content] == ["video_url", "text"]
    assert content[0]["video_url"]["url"].startswith("data:video/mp4;base64,")
    assert content[1]["text"] == "이 영상의 시각과 음성을 한국어로 분석해줘."
    assert body == {
        "model": "qwen",
        "temperature": 0.3,
        "max_tokens": 1024,
        "response_format": schema_format(analysis_schema(), "clip_analysis"),
        "media_io_kwargs": {"video": {"fps": 2.0}},
        "mm_processor_kwargs": {"use_audio_in_video": True},
        "chat_template_kwargs": {"enable_thinking": False},
    }


async def test_clip_options_leave_things_out(mp4: bytes) -> None:
    options = ClipOptions(strict=False, sound=False, num_frames=8)
    body = json.loads((await clip_request(mp4, options)).body)
    assert body["media_io_kwargs"] == {"video": {"num_frames": 8}}
    assert not {"response_format", "mm_processor_kwargs", "model"} & body.keys()
    plain = json.loads((await clip_request(mp4, ClipOptions(mm_kwargs=False))).body)
    assert not {"media_io_kwargs", "mm_processor_kwargs"} & plain.keys()


async def test_frames_and_sound_keep_their_order(png: bytes, wav: Path) -> None:
    body = json.loads((await frames_request([png, png, png], wav, ClipOptions(prompt="?"))).body)
    content = body["messages"][0]["content"]
    assert [part["type"] for part in content] == ["image_url"] * 3 + ["input_audio", "text"]
    assert "media_io_kwargs" not in body
    with pytest.raises(ValueError, match="at least one frame"):
        await frames_request([])


def test_schema_is_strict_and_bounded() -> None:
    schema = analysis_schema()
    assert schema["required"] == ["scene", "on_screen_text", "speech", "sound"]
    assert schema["additionalProperties"] is False
    for field in schema["properties"].values():
        assert field["type"] == "string"
        assert 0 < field["maxLength"] <= 1000
        assert any("가" <= char <= "힣" for char in field["description"])
    assert AnalysisResult("a", "", "", "").scene == "a"
