"""A real llama.cpp behind the gateway: every answer is compared with the one given directly."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import shutil
import time
from dataclasses import dataclass
from typing import Any

import aiohttp
import jsonschema
import psutil
import pytest
from PIL import Image

Json = dict[str, Any]
FREED_WITHIN_S = 0.5

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "label": {"type": "string", "enum": ["sports", "news"]},
        "score": {"type": "integer", "minimum": 0, "maximum": 100},
        "title": {"type": "string", "maxLength": 40},
        "safe": {"type": "boolean"},
    },
    "required": ["label", "score", "title", "safe"],
    "additionalProperties": False,
}
TOOL: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@dataclass(frozen=True)
class Answer:
    status: int
    kind: str
    body: bytes
    headers: Any

    @property
    def same(self) -> Json:
        """The body without what differs from call to call."""
        found: Json = json.loads(self.body)
        for key in ("id", "created", "timings"):
            found.pop(key, None)
        found.get("usage", {}).pop("prompt_tokens_details", None)
        return found

    @property
    def text(self) -> str:
        return str(json.loads(self.body)["choices"][0]["message"]["content"])

    @property
    def prompt_tokens(self) -> int:
        return int(json.loads(self.body)["usage"]["prompt_tokens"])


def request(content: Any, **more: Any) -> Json:
    message = {"role": "user", "content": content}
    # without the prompt cache the numbers, and so the reply, do not depend on what was asked before
    fixed = {"model": "tiny", "temperature": 0, "max_tokens": 200, "cache_prompt": False}
    return {**fixed, "messages": [message], **more}


def picture(colour: tuple[int, int, int], kind: str = "PNG") -> Json:
    buffer = io.BytesIO()
    Image.new("RGB", (128, 96), colour).save(buffer, kind)
    encoded = base64.b64encode(buffer.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind.lower()};base64,{encoded}"}}


def broken_picture() -> Json:
    """A picture whose size can be read, and that cannot be decoded: a table in it is of no known kind."""
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64)).save(buffer, "JPEG")
    octets = bytearray(buffer.getvalue())
    octets[octets.find(b"\xff\xdb") + 4] = 0x3F
    encoded = base64.b64encode(octets).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{encoded}"}}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


async def post(root: str, body: Json | bytes, path: str = "/v1/chat/completions") -> Answer:
    octets = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    async with aiohttp.request("POST", root + path, data=octets, headers=headers) as answer:
        return Answer(answer.status, answer.content_type, await answer.read(), answer.headers)


@pytest.fixture
def both(upstream_url: str, gateway_url: str) -> Any:
    async def ask(body: Json) -> Answer:
        """Ask directly and through the gateway; the two answers must be the same."""
        direct, relayed = await post(upstream_url, body), await post(gateway_url, body)
        assert (relayed.status, relayed.kind) == (direct.status, direct.kind)
        assert relayed.same == direct.same
        return relayed

    return ask


async def test_text_ends_by_itself(both: Any) -> None:
    answer = await both(request("describe the scene"))
    assert answer.status == 200
    assert json.loads(answer.body)["choices"][0]["finish_reason"] == "stop"
    assert answer.text
    assert answer.text != (await both(request("요약 영상"))).text


async def test_chat_is_the_same_as_the_openai_path(gateway_url: str) -> None:
    body = request("describe the scene")
    assert (await post(gateway_url, body, "/chat")).same == (await post(gateway_url, body)).same


async def test_pictures_are_seen(both: Any) -> None:
    replies = [
        await both(request([picture((200, 30, 30)), text("describe")])),
        await both(request([picture((0, 0, 0)), text("describe")])),
        await both(request([picture((0, 0, 0), "JPEG"), text("describe")])),
    ]
    assert [reply.status for reply in replies] == [200, 200, 200]
    assert replies[0].text != replies[1].text
    assert replies[0].prompt_tokens > 20


async def test_stream_arrives_in_events_and_is_the_same(upstream_url: str, gateway_url: str) -> None:
    body = request("describe the scene", stream=True, stream_options={"include_usage": True})
    streams = []
    for root in (upstream_url, gateway_url):
        answer = await post(root, body)
        assert answer.kind == "text/event-stream"
        assert answer.body.endswith(b"data: [DONE]\n\n")
        events = [json.loads(line[6:]) for line in answer.body.split(b"\n\n")[:-2]]
        streams.append([event["choices"] for event in events])
        assert events[-1]["usage"]["completion_tokens"] > 3
        assert len(events) > 3
    assert streams[0] == streams[1]


async def test_json_schema_is_kept_to(both: Any) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "clip", "strict": True, "schema": SCHEMA}}
    for content in ("describe", "요약", [picture((9, 90, 200)), text("label")]):
        answer = await both(request(content, response_format=form, max_tokens=400))
        jsonschema.validate(json.loads(answer.text), SCHEMA)


async def test_tools_reach_the_template(both: Any) -> None:
    """This build does not enforce `tool_choice`; what is certain is that the tools are in the prompt."""
    plain = await both(request("weather"))
    offered = await both(request("weather", tools=[TOOL], tool_choice="auto"))
    assert offered.prompt_tokens > plain.prompt_tokens + 50


async def test_a_tool_result_is_taken(both: Any) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    turns = [
        {"role": "user", "content": "weather"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    assert (await both({**request(""), "messages": turns, "tools": [TOOL]})).status == 200


async def test_errors_are_passed_on(both: Any) -> None:
    too_long = await both(request("the " * 40_000))
    assert too_long.status == 400
    assert json.loads(too_long.body)["error"]["type"] == "exceed_context_size_error"
    assert (await both(request([broken_picture(), text("x")]))).status == 400
    assert (await both({"model": "tiny"})).status == 400


async def test_a_picture_without_mmproj_is_refused(blind_url: str, blind_gateway_url: str) -> None:
    body = request([picture((0, 0, 0)), text("x")])
    direct, relayed = await post(blind_url, body), await post(blind_gateway_url, body)
    assert (relayed.status, relayed.body) == (direct.status, direct.body)
    assert relayed.status >= 400


async def test_what_is_no_picture_does_not_reach_the_upstream(upstream_url: str, gateway_url: str) -> None:
    bad = {"type": "image_url", "image_url": {"url": "data:image/png;base64,bm90IGFuIGltYWdl"}}
    body = request([bad, text("x")])
    direct, relayed = await post(upstream_url, body), await post(gateway_url, body)
    assert relayed.status == direct.status == 400
    assert json.loads(relayed.body)["error"]["code"] == "media_unsupported"


async def test_bad_json_does_not_reach_the_upstream(gateway_url: str) -> None:
    answer = await post(gateway_url, b'{"model": ')
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["code"] == "invalid_json"


async def test_clip(both: Any) -> None:
    if not (shutil.which("ffmpeg") and shutil.which("ffprobe")):
        pytest.skip("llama.cpp reads clips with ffmpeg and ffprobe, which are not on PATH")
    clips = [
        {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{make_clip(shade)}"}}
        for shade in (0, 255)
    ]
    replies = [await both(request([clip, text("describe")])) for clip in clips]
    assert [reply.status for reply in replies] == [200, 200]
    assert replies[0].text != replies[1].text


def make_clip(shade: int) -> str:
    import av
    import numpy as np

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as out:
        track = out.add_stream("libx264", rate=5)
        track.width, track.height, track.pix_fmt = 96, 64, "yuv420p"
        for _ in range(10):
            frame = av.VideoFrame.from_ndarray(np.full((64, 96, 3), shade, np.uint8), format="rgb24")
            out.mux(track.encode(frame))
        out.mux(track.encode(None))
    return base64.b64encode(buffer.getvalue()).decode()


async def busy_slots(root: str) -> int:
    async with aiohttp.request("GET", f"{root}/slots") as answer:
        return sum(slot["is_processing"] for slot in await answer.json())


async def wait_slots(root: str, count: int, within_s: float) -> float:
    start = time.monotonic()
    while (found := await busy_slots(root)) != count:
        assert time.monotonic() - start < within_s, f"{found} slots are busy, not {count}"
        await asyncio.sleep(0.02)
    return time.monotonic() - start


async def leave(upstream_url: str, gateway_url: str, body: Json) -> int:
    """Ask, and go as soon as llama.cpp is at work. Returns the gateway's connections at that moment."""
    await wait_slots(upstream_url, 0, 10)
    asking = asyncio.create_task(post(gateway_url, body))
    await wait_slots(upstream_url, 1, 5)
    assert not asking.done()
    open_then = connections_to(upstream_url)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    return open_then


def connections_to(root: str) -> int:
    port = int(root.rsplit(":", 1)[1])
    found = psutil.net_connections("tcp4")
    return sum(one.status == "ESTABLISHED" and port in one.raddr[1:] for one in found)


async def test_a_client_that_leaves_a_stream_frees_the_slot(upstream_url: str, gateway_url: str) -> None:
    await leave(upstream_url, gateway_url, request("x", stream=True, max_tokens=16_000, ignore_eos=True))
    await wait_slots(upstream_url, 0, FREED_WITHIN_S)


async def test_a_client_that_leaves_before_the_first_byte_frees_the_connection(
    upstream_url: str, gateway_url: str
) -> None:
    """llama.cpp itself goes on to the end of an answer that is not streamed, also when asked directly."""
    body = request("x", max_tokens=5_000, ignore_eos=True)
    open_then = await leave(upstream_url, gateway_url, body)
    end = time.monotonic() + FREED_WITHIN_S
    while connections_to(upstream_url) != open_then - 1:
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
    await wait_slots(upstream_url, 0, 20)


async def test_batch(gateway_url: str) -> None:
    bodies = {"text": request("describe"), "seen": request([picture((0, 0, 0)), text("x")])}
    bodies["bad"] = request([broken_picture(), text("x")])
    items = [{"id": name, "body": body} for name, body in bodies.items()]
    answer = await post(gateway_url, {"items": items}, "/chat/batch")
    lines = {line["id"]: line for line in map(json.loads, answer.body.splitlines())}
    assert {name: line["status"] for name, line in lines.items()} == {"text": 200, "seen": 200, "bad": 400}
    assert lines["bad"]["error"]["error"]["type"] == "invalid_request_error"
    assert answer.headers["X-Batch-Total"] == "3"


async def test_models_are_listed(upstream_url: str, gateway_url: str) -> None:
    for root in (upstream_url, gateway_url):
        async with aiohttp.request("GET", f"{root}/v1/models") as answer:
            assert [model["id"] for model in (await answer.json())["data"]] == ["tiny"]
