"""What vLLM answers is what comes out of the gateway."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

pytestmark = pytest.mark.conformance

SCHEMA = {
    "type": "object",
    "properties": {
        "label": {"type": "string", "enum": ["sports", "news", "other"]},
        "score": {"type": "integer", "minimum": 0, "maximum": 100},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 3},
        "safe": {"type": "boolean"},
    },
    "required": ["label", "score", "tags", "safe"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "clip", "strict": True, "schema": SCHEMA}}
CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 16},
        "unit": {"type": "string", "enum": ["c", "f"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": CITY, "strict": True}}


async def test_text(vl: Any, request_of: Any) -> None:
    english = await vl.both(request_of("Describe the scene."))
    korean = await vl.both(request_of("요약해 주세요."))
    assert english.status == korean.status == 200
    assert english.text != korean.text


async def test_pictures(vl: Any, media: Any, request_of: Any) -> None:
    seen = await vl.both(request_of(["What is it?", media.image()]))
    black = await vl.both(request_of(["What is it?", media.image("black.png")]))
    two = await vl.both(request_of([media.image("square.jpg", "image/jpeg"), media.image(), "Compare."]))
    assert seen.status == black.status == two.status == 200
    assert seen.text != black.text
    tokens = [
        answer.json["usage"]["prompt_tokens_details"]["multimodal_tokens"]["image"] for answer in (seen, two)
    ]
    assert tokens[1] == 2 * tokens[0] > 0


async def test_clip(vl: Any, media: Any, request_of: Any) -> None:
    moving = await vl.both(request_of([media.clip(), "Summarize."]))
    still = await vl.both(request_of([media.clip("still.mp4"), "Summarize."]))
    assert moving.status == still.status == 200
    assert moving.text != still.text


async def test_frames_per_second_of_a_clip_reach_vllm(vl: Any, media: Any, request_of: Any) -> None:
    counts = []
    for fps in (2, 4):
        options = {"video": {"fps": fps, "num_frames": -1}}
        answer = await vl.both(request_of([media.clip(), "Summarize."], media_io_kwargs=options))
        counts.append(answer.json["usage"]["prompt_tokens"])
    assert counts[1] > counts[0]


async def test_clip_with_sound(omni: Any, media: Any, request_of: Any) -> None:
    with_sound = {"mm_processor_kwargs": {"use_audio_in_video": True}}
    deaf = await omni.both(request_of([media.clip("sound.mp4"), "Describe."]))
    hearing = await omni.both(request_of([media.clip("sound.mp4"), "Describe."], **with_sound))
    assert deaf.status == hearing.status == 200
    assert hearing.json["usage"]["prompt_tokens"] > deaf.json["usage"]["prompt_tokens"]
    assert hearing.text != deaf.text


async def test_frames_and_sound_apart(omni: Any, media: Any, request_of: Any) -> None:
    answer = await omni.both(request_of([media.clip(), media.sound(), "Describe."]))
    assert answer.status == 200
    assert answer.json["usage"]["prompt_tokens_details"]["multimodal_tokens"]["audio"] > 0


async def test_stream(vl: Any, media: Any, request_of: Any) -> None:
    more = {"stream": True, "stream_options": {"include_usage": True}}
    answer = await vl.both(request_of(["Describe.", media.image()], **more))
    assert answer.kind == "text/event-stream"
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert answer.events[-1]["usage"]["completion_tokens"] == 16
    whole = await vl.both(request_of(["Describe.", media.image()]))
    pieces = [event["choices"][0]["delta"].get("content") or "" for event in answer.events[:-1]]
    assert "".join(pieces) == whole.text


async def test_schema(vl: Any, media: Any, request_of: Any) -> None:
    for content in ("Label it.", ["Label it.", media.image()], [media.clip(), "분류해 주세요."]):
        answer = await vl.both(request_of(content, response_format=FORM, max_tokens=300))
        jsonschema.validate(json.loads(answer.text), SCHEMA)


async def test_schema_of_a_clip_with_sound_in_a_stream(omni: Any, media: Any, request_of: Any) -> None:
    more = {"mm_processor_kwargs": {"use_audio_in_video": True}, "stream": True, "response_format": FORM}
    answer = await omni.both(request_of([media.clip("sound.mp4"), "Label it."], max_tokens=300, **more))
    pieces = [event["choices"][0]["delta"].get("content") or "" for event in answer.events]
    jsonschema.validate(json.loads("".join(pieces)), SCHEMA)


@pytest.mark.parametrize("stream", [False, True])
async def test_tools(vl: Any, request_of: Any, stream: bool) -> None:
    body = request_of("Weather in 서울?", tools=[TOOL], tool_choice="required", max_tokens=300, stream=stream)
    answer = await vl.both(body)
    assert answer.status == 200
    if stream:
        assert any(event["choices"][0]["delta"].get("tool_calls") for event in answer.events)
        return
    choice = answer.json["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    for call in choice["message"]["tool_calls"]:
        jsonschema.validate(json.loads(call["function"]["arguments"]), CITY)


async def test_the_request_id_reaches_vllm(vl: Any, request_of: Any) -> None:
    answer = await vl.post(vl.gateway, request_of("hi"), x_request_id="clip-2026.11:7")
    assert answer.json["id"] == "chatcmpl-clip-2026.11:7"
    assert answer.headers.getall("X-Request-Id") == ["clip-2026.11:7"]
    made = await vl.post(vl.gateway, request_of("hi"))
    assert made.json["id"] == f"chatcmpl-{made.headers['X-Request-Id']}"


async def test_batch(vl: Any, media: Any, request_of: Any) -> None:
    bodies = {
        "text": request_of("hi"),
        "picture": request_of(["hi", media.image()]),
        "clip": request_of([media.clip(), "hi"]),
        "broken": request_of(["hi", media.image(b"not a picture")]),
        "hot": request_of("hi", temperature=-1),
        "unknown": {**request_of("hi"), "model": "nope"},
    }
    items = [{"id": name, "body": body} for name, body in bodies.items()]
    answer = await vl.post(vl.gateway, {"items": items}, "/chat/batch", x_request_id="b1")
    assert (answer.status, answer.kind) == (200, "application/x-ndjson")
    assert answer.headers["X-Batch-Total"] == "6"
    lines = {line["id"]: line for line in map(json.loads, answer.body.splitlines())}
    statuses = {name: line["status"] for name, line in lines.items()}
    refused = {"broken": 400, "hot": 400, "unknown": 404}
    assert statuses == {"text": 200, "picture": 200, "clip": 200, **refused}
    ids = {lines[name]["body"]["id"] for name in ("text", "picture", "clip")}
    assert len(ids) == 3
    assert all(found.startswith("chatcmpl-b1-") for found in ids)
    direct = await vl.post(vl.server, bodies["hot"])
    assert lines["hot"]["error"] == direct.json
    assert lines["broken"]["code"] == "media_unsupported"


async def test_models(vl: Any) -> None:
    import aiohttp

    found = []
    for root in (vl.server, vl.gateway):
        async with aiohttp.request("GET", f"{root}/v1/models") as answer:
            found.append([model["id"] for model in (await answer.json())["data"]])
    assert found == [["tiny"], ["tiny"]]
