"""The example fleet on two real vLLMs: one hears and takes 4,096 tokens, one sees and takes four times that.

The first serves the models that are asked first, the second those to which a request falls back.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.conformance.conftest import LARGE, MLX, ROOM, SMALL, TEXT, told_by
from tests.example_fleet import KEY, KEY_ID

if TYPE_CHECKING:
    from tests.conformance.conftest import Media, Servers
    from tests.example_fleet import ExampleFleet

pytestmark = pytest.mark.conformance

FREED_WITHIN_S = 1.0
NARROW, WIDE = ROOM
PICTURE, CLIP, SOUND = "p640x360.png", "c75_10.mp4", "a1s.wav"
NUMBER = "주민등록번호 900101-1234568 입니다"


@pytest.mark.parametrize(
    ("model", "shown", "hops"),
    [
        ("auto", None, f"chat;reason=auto, {MLX};status=200"),
        ("text-auto", None, f"text-auto;reason=model, {MLX};status=200"),
        ("auto-thinking", None, f"{TEXT};reason=auto, {TEXT};status=200"),
        ("auto-precise", None, f"{TEXT};reason=auto, {TEXT};status=200"),
        ("auto-precise", PICTURE, f"precise;reason=auto, {LARGE};status=200"),
        ("auto", CLIP, f"precise;reason=auto, {LARGE};status=200"),
        ("auto-fast", PICTURE, f"{SMALL};reason=auto, {SMALL};status=200"),
        ("auto-fast", CLIP, f"{SMALL};reason=auto, {SMALL};status=200"),
        ("agent", PICTURE, f"precise;reason=auto, {LARGE};status=200"),
        ("agent", None, f"precise;reason=auto, {LARGE};status=200"),
        ("coding", PICTURE, f"{LARGE};reason=auto, {LARGE};status=200"),
        ("vision-auto", CLIP, f"vision-auto;reason=model, {LARGE};status=200"),
        ("vision-auto", SOUND, f"vision-auto;reason=model, {LARGE};status=200"),
        # a server that lists a name under which it was not set up is asked by it too
        (TEXT, PICTURE, f"{TEXT};reason=model, {SMALL};status=200"),
    ],
)
async def test_a_request_goes_where_the_table_says(
    fleet: ExampleFleet, exact_media: Media, model: str, shown: str | None, hops: str
) -> None:
    parts = [] if shown is None else [exact_media.part(shown)]
    answer = await fleet.post(_request(model, *parts, "What is it?"))
    assert answer.status == 200, answer.body
    assert ", ".join(answer.hops) == hops
    assert answer.usage["completion_tokens"] > 0
    line = await fleet.line(answer)
    assert (line["upstream"], line["key"]) == (hops.rpartition(", ")[2].partition(";")[0], KEY_ID)
    assert line["prompt_tokens"] == answer.usage["prompt_tokens"]


async def test_enable_thinking_is_a_task(fleet: ExampleFleet) -> None:
    answer = await fleet.post(_request("auto", "hi", chat_template_kwargs={"enable_thinking": True}))
    assert answer.hops == [f"{TEXT};reason=auto", f"{TEXT};status=200"]


async def test_an_unknown_model_is_told_as_vllm_tells_it(fleet: ExampleFleet, servers: Servers) -> None:
    answer = await fleet.post(_request("no-such-model", "hi"))
    async with aiohttp.request(
        "POST", f"{servers.seeing}/v1/chat/completions", json=_request("no-such-model", "hi")
    ) as direct:
        told = await direct.json()
    assert answer.status == direct.status == 404
    known = "The model `no-such-model` does not exist"
    assert answer.error["message"].startswith(known)
    assert told["error"]["message"].startswith(known)
    assert answer.error["type"] == told["error"]["type"]


async def test_a_stream_says_the_same(fleet: ExampleFleet, exact_media: Media) -> None:
    body = _request("auto-fast", exact_media.part(PICTURE), "What is it?")
    whole = await fleet.post(body)
    streamed = await fleet.post({**body, "stream": True, "stream_options": {"include_usage": True}})
    assert streamed.hops == whole.hops
    assert streamed.spoken == whole.text
    assert streamed.body.endswith(b"data: [DONE]\n\n")
    assert (await fleet.line(streamed))["prompt_tokens"] == whole.usage["prompt_tokens"]


@pytest.mark.parametrize("stream", [False, True])
async def test_what_vllm_finds_too_long_goes_to_one_with_more_room(fleet: ExampleFleet, stream: bool) -> None:
    """Digits are a token each, which the gateway cannot know before."""
    answer = await fleet.post(_request("auto", "7" * (NARROW + 500), stream=stream))
    assert answer.status == 200
    assert answer.hops == ["chat;reason=auto", f"{MLX};failed=http_400", f"{TEXT};status=200"]


async def test_what_nobody_has_room_for_is_told_as_vllm_tells_it(fleet: ExampleFleet) -> None:
    answer = await fleet.post(_request("auto", "7" * (WIDE + 500)))
    assert answer.status == 400
    assert answer.hops == ["chat;reason=auto", f"{MLX};failed=http_400", f"{TEXT};status=400"]
    assert f"{WIDE}" in answer.error["message"]


async def test_what_surely_does_not_fit_is_never_sent(fleet: ExampleFleet, servers: Servers) -> None:
    """By the lengths that both servers told of themselves."""
    before = [await told_by(server, "vllm:prompt_tokens_total") for server in servers]
    began = time.monotonic()
    answer = await fleet.post(_request("auto", "hi", max_tokens=WIDE + 1))
    assert time.monotonic() - began < 1
    assert (answer.status, answer.error["code"]) == (400, "prompt_too_long")
    assert (answer.error["limit"], answer.error["largest"]) == (WIDE, "answer")
    codes = [f"{MLX};failed=prompt_too_long", f"{TEXT};failed=prompt_too_long"]
    assert answer.hops == ["chat;reason=auto", *codes]
    assert [await told_by(server, "vllm:prompt_tokens_total") for server in servers] == before


async def test_four_screens_go_to_the_one_that_has_room_for_them(
    fleet: ExampleFleet, exact_media: Media
) -> None:
    """And are made as small as that one wants them."""
    screens = [exact_media.part("p1920x1080.png")] * 4
    answer = await fleet.post(_request("auto", *screens, "Compare."))
    assert answer.status == 200, answer.body
    assert answer.hops == ["precise;reason=auto", f"{LARGE};failed=prompt_too_long", f"{SMALL};status=200"]
    told = answer.headers["X-Dabom-Media"].split(", ")
    assert told == [f"{number};was=1920x1080;now=1184x672" for number in range(4)]
    image = answer.usage["prompt_tokens_details"]["multimodal_tokens"]["image"]
    assert image == 4 * (1184 // 32) * (672 // 32)


async def test_a_clip_that_can_never_fit_is_refused_with_its_number(
    fleet: ExampleFleet, servers: Servers, exact_media: Media
) -> None:
    parts = [exact_media.part("p1x1.png"), exact_media.part("c31_30_fhd.mp4")]
    options = {"media_io_kwargs": {"video": {"fps": 30}}, "mm_processor_kwargs": {"fps": 30.0}}
    before = await told_by(servers.hearing, "vllm:prompt_tokens_total")
    answer = await fleet.post(_request("coding", *parts, "What?", **options))
    assert (answer.status, answer.error["code"]) == (400, "prompt_too_long")
    assert (answer.error["limit"], answer.error["largest"]) == (NARROW, "video 2")
    assert await told_by(servers.hearing, "vllm:prompt_tokens_total") == before
    assert (await fleet.record(answer))["code"] == "prompt_too_long"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_frees_the_slot(
    fleet: ExampleFleet, servers: Servers, exact_media: Media, stream: bool
) -> None:
    await _wait_running(servers.hearing, 0, 10)
    long = {"max_tokens": 3000, "ignore_eos": True, "stream": stream}
    asking = asyncio.create_task(
        fleet.post(_request("auto", exact_media.part(PICTURE), "x", **long), x_request_id=f"left-{stream}")
    )
    await _wait_running(servers.hearing, 1, 10)
    assert await fleet.metric("dabom_tokens_in_flight", upstream=LARGE) > 3000
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await _wait_running(servers.hearing, 0, FREED_WITHIN_S)
    assert await fleet.metric("dabom_tokens_in_flight") == await fleet.metric("dabom_permits_held") == 0
    record = await fleet.record_of(f"left-{stream}")
    status = 200 if stream else 499  # a stream has begun by then
    assert (record["upstream"], record["status"], record["code"]) == (LARGE, status, "client_gone")


async def test_a_batch_of_eight_over_two_targets(fleet: ExampleFleet, exact_media: Media) -> None:
    names = ["auto", "auto-fast", "auto-thinking", "agent"] * 2
    content = [exact_media.part(PICTURE), "x"]
    bodies = [_request(name, *(["x"] if "thinking" in name else content)) for name in names]
    items = [{"id": str(number), "body": body} for number, body in enumerate(bodies)]
    answer = await fleet.post({"items": items}, "/chat/batch")
    assert [line["status"] for line in answer.lines] == [200] * 8
    assert {line["id"] for line in answer.lines} == {str(number) for number in range(8)}
    lines = [await fleet.line(answer, number) for number in range(1, 9)]
    assert [line["upstream"] for line in lines] == [LARGE, SMALL, TEXT, LARGE] * 2
    record = await fleet.record_of(f"{answer.request_id}-8")
    assert (record["upstream"], record["status"], record["key"]) == (LARGE, 200, KEY_ID)


async def test_a_batch_is_shared_by_replicas(fleet: ExampleFleet) -> None:
    items = [{"id": str(number), "body": _request("either", "x", max_tokens=64)} for number in range(8)]
    answer = await fleet.post({"items": items}, "/chat/batch")
    assert [line["status"] for line in answer.lines] == [200] * 8
    lines = [await fleet.line(answer, number) for number in range(1, 9)]
    assert {line["upstream"] for line in lines} == {LARGE, SMALL}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_number_is_masked_over_the_tokens_that_it_comes_in(
    fleet: ExampleFleet, servers: Servers, stream: bool
) -> None:
    """The model is made to say it; each digit comes in an event of its own."""
    body = _request(TEXT, "x", max_tokens=64, structured_outputs={"choice": [NUMBER]}, stream=stream)
    async with aiohttp.request("POST", f"{servers.seeing}/v1/chat/completions", json=body) as direct:
        plain = await direct.text()
    before = await fleet.metric("dabom_masked_total", kind="resident_number")
    answer = await fleet.post(body)
    assert answer.status == 200
    said = answer.spoken if stream else answer.text
    assert said == NUMBER.replace("234568", "******")
    assert b"234568" not in answer.body
    assert await fleet.metric("dabom_masked_total", kind="resident_number") == before + 1
    if stream:
        assert len(re.findall(r'"content":"\d"', plain)) >= 6
        assert answer.body.endswith(b"data: [DONE]\n\n")
    else:
        assert "234568" in plain


async def test_a_key_is_needed_and_known(fleet: ExampleFleet) -> None:
    wrong = await fleet.post(_request("auto", "x"), authorization=f"Bearer {KEY}x")
    assert wrong.status == 401
    assert await fleet.metric("dabom_key_tokens_total", key=KEY_ID, kind="prompt") > 0


async def test_metrics_and_audit_agree(fleet: ExampleFleet) -> None:
    written = {"outcome": "written"}
    assert await fleet.metric("dabom_audit_records_total", outcome="dropped") == 0
    assert await fleet.metric("dabom_audit_records_total", **written) > 0
    for upstream in (MLX, TEXT, LARGE, SMALL):
        assert await fleet.metric("dabom_breaker_state", upstream=upstream) == 0
        assert await fleet.metric("dabom_upstream_healthy", upstream=upstream) == 1


def _request(model: str, *content: Any, **more: Any) -> dict[str, Any]:
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    fixed = {"model": model, "temperature": 0, "max_tokens": 8}
    return {**fixed, "messages": [{"role": "user", "content": parts}], **more}


async def _wait_running(server: str, count: int, within_s: float) -> None:
    end = time.monotonic() + within_s
    while (found := await told_by(server, "vllm:num_requests_running")) != count:
        assert time.monotonic() < end, f"vLLM works on {found:g} requests, not {count}"
        await asyncio.sleep(0.05)
