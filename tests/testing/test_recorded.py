"""The recordings are well-formed and go over the wire as they were recorded."""

from __future__ import annotations

import asyncio

import aiohttp
import msgspec
import pytest

from dabom.testing import ScriptedUpstream, recording
from dabom.testing.recorded import load_recording, recording_names

WHOLE = [name for name in recording_names() if load_recording(name).then != "stall"]


def test_the_set_covers_what_tests_need() -> None:
    needed = {"text", "image", "video", "video_with_sound", "stream", "stream_usage", "schema", "tools"}
    assert {f"vllm_{name}" for name in needed} <= set(recording_names())
    assert any(name.startswith("llama_cpp_") for name in recording_names())


@pytest.mark.parametrize("name", WHOLE)
async def test_a_recording_is_played_as_recorded(name: str) -> None:
    answer = load_recording(name)
    async with (
        ScriptedUpstream(recording(name)) as up,
        aiohttp.request("POST", f"{up.url}/chat/completions", data=b"{}") as reply,
    ):
        assert reply.status == answer.status
        assert (await reply.read()).decode() == answer.body
        for key, value in answer.headers:
            if key.lower() not in ("connection", "keep-alive"):
                assert reply.headers[key] == value


@pytest.mark.parametrize("name", recording_names())
def test_a_recording_is_json_or_events(name: str) -> None:
    answer = load_recording(name)
    if not answer.streamed:
        assert isinstance(msgspec.json.decode(answer.body), dict)
        return
    events = answer.body.split("\n\n")[:-1]
    assert all(event.startswith("data: ") for event in events)
    for event in events:
        if event != "data: [DONE]":
            assert isinstance(msgspec.json.decode(event.removeprefix("data: ")), dict)


async def test_sigterm_recording_falls_silent_with_the_connection_open() -> None:
    script = recording("vllm_stream_silent_after_sigterm")
    async with (
        ScriptedUpstream(script) as up,
        aiohttp.request("POST", f"{up.url}/chat/completions", data=b"{}") as reply,
    ):
        for _ in range(3):
            await reply.content.readuntil(b"\n\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reply.content.read(1), 0.2)


async def test_engine_kill_recording_says_done_after_its_error() -> None:
    script = recording("vllm_stream_engine_killed", gap_s=0.01)
    async with ScriptedUpstream(script) as up, aiohttp.ClientSession() as session:
        async with session.post(f"{up.url}/chat/completions", data=b"{}") as reply:
            body = await reply.text()
        assert '"code": 500' in body
        assert body.endswith("data: [DONE]\n\n")
        await up.wait_closed()
