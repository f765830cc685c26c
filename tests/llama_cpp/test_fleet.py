"""The example fleet on real llama.cpp: two of its models are served by the gateway itself, one by a server.

The fourth is scripted, so that it can be well or dead.
"""

from __future__ import annotations

import base64
import io
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import pytest
import pytest_asyncio
from PIL import Image
from tests.example_fleet import KEY_ID, ExampleFleet, example_fleet

from dabom.testing import Reset, ScriptedUpstream, chat_answer, free_port, json_reply, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.example_fleet import Answer

    from dabom.testing import Seen, Step

pytestmark = pytest.mark.asyncio(loop_scope="module")

_MLX, _TEXT, _LARGE, _SMALL = "qwen3-14b-mlx", "qwen3-30b", "qwen3-vl-30b", "qwen3-vl-8b"
_NARROW, _WIDE, _SEEING = 512, 4096, 2048
"""Tokens that the three models on llama.cpp take. That of the server is not in the settings."""
_SMALL_PIXELS = 802_816
"""`max_pixels` of qwen3-vl-8b in the example."""


class _Large:
    """qwen3-vl-30b, scripted."""

    def __init__(self) -> None:
        self.well = True
        self.upstream = ScriptedUpstream(self._answer, models=(_LARGE,))

    def _answer(self, _: Seen) -> list[Step]:
        return json_reply(chat_answer("seen by the large one", model=_LARGE)) if self.well else [Reset()]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def large() -> AsyncIterator[_Large]:
    large = _Large()
    async with large.upstream:
        yield large


@pytest.fixture(scope="module")
def text_url(gguf: Path) -> Iterator[str]:
    """The root URL of a llama.cpp that somebody else has started."""
    port = free_port()
    command = [sys.executable, "-m", "dabom.llama_cpp", "--model", str(gguf / "model.gguf"), "--slots", "2"]
    command += ["--alias", _TEXT, "--context", str(_WIDE), "--port", str(port)]
    with running(command, f"http://127.0.0.1:{port}/health"):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def fleet(
    gguf: Path, large: _Large, text_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ExampleFleet]:
    ours = {"url": None, "kind": "llama_cpp", "gguf": str(gguf / "model.gguf")}
    sees = {"mmproj": str(gguf / "mmproj.gguf"), "max_model_len": _SEEING, "concurrency": 2}
    upstreams: dict[str, dict[str, Any]] = {
        _MLX: {**ours, "max_model_len": _NARROW},
        _TEXT: {"url": f"{text_url}/v1", "kind": "llama_cpp", "concurrency": 2},
        _LARGE: {"url": large.upstream.url},
        _SMALL: {**ours, **sees},
    }
    with example_fleet(tmp_path_factory.mktemp("fleet"), upstreams) as running_fleet:
        yield running_fleet


@pytest.fixture(autouse=True)
def the_large_one_is_well(large: _Large) -> None:
    large.well = True


def _request(model: str, *content: Any, **more: Any) -> dict[str, Any]:
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    # without the prompt cache a reply does not depend on what was asked before
    fixed = {"model": model, "temperature": 0, "max_tokens": 24, "cache_prompt": False}
    return {**fixed, "messages": [{"role": "user", "content": parts}], **more}


def _picture(width: int, height: int, seed: int = 0) -> dict[str, Any]:
    """Noise, so that two pictures are not alike to the model."""
    grain = np.random.default_rng(seed).integers(0, 255, (height // 8, width // 8, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(grain).resize((width, height)).save(file, "JPEG")
    url = "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": url}}


async def _prompt_tokens(url: str) -> float:
    """All that a llama.cpp has read so far."""
    async with aiohttp.request("GET", f"{url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith("llamacpp:prompt_tokens_total "))


@pytest.mark.parametrize(
    ("model", "first", "target"),
    [
        ("auto", "chat;reason=auto", _MLX),
        ("text-auto", "text-auto;reason=model", _MLX),
        ("auto-thinking", f"{_TEXT};reason=auto", _TEXT),
        (_TEXT, f"{_TEXT};reason=model", _TEXT),
    ],
)
async def test_a_text_goes_where_the_table_says(
    fleet: ExampleFleet, model: str, first: str, target: str
) -> None:
    answer = await fleet.post(_request(model, "describe the scene"))
    assert answer.status == 200
    assert answer.hops == [first, f"{target};status=200"]
    assert answer.text
    assert answer.json["model"] == target
    line = await fleet.line(answer)
    assert (line["prompt_tokens"], line["upstream"]) == (answer.usage["prompt_tokens"], target)


async def test_the_name_of_a_model_is_the_one_that_the_target_knows(
    fleet: ExampleFleet, large: _Large
) -> None:
    body = _request("vision-auto", "what is it?", _picture(64, 64))
    answer = await fleet.post(body)
    assert answer.hops == ["vision-auto;reason=model", f"{_LARGE};status=200"]
    assert large.upstream.seen[-1].json() == {**body, "model": _LARGE}


async def test_a_picture_in_real_time_is_seen_by_llama_cpp(fleet: ExampleFleet) -> None:
    answers = [await fleet.post(_request("auto-fast", "describe", _picture(96, 64, seed))) for seed in (1, 2)]
    for answer in answers:
        assert answer.status == 200
        assert answer.hops == [f"{_SMALL};reason=auto", f"{_SMALL};status=200"]
        assert "X-Dabom-Media" not in answer.headers
    assert answers[0].text != answers[1].text


async def test_a_stream_says_the_same(fleet: ExampleFleet) -> None:
    body = _request("auto-fast", "describe", _picture(96, 64, 1))
    whole = await fleet.post(body)
    streamed = await fleet.post({**body, "stream": True, "stream_options": {"include_usage": True}})
    assert streamed.hops == whole.hops
    assert streamed.spoken == whole.text
    assert streamed.body.endswith(b"data: [DONE]\n\n")
    assert (await fleet.line(streamed))["prompt_tokens"] == whole.usage["prompt_tokens"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_dead_target_is_passed_over(fleet: ExampleFleet, large: _Large, stream: bool) -> None:
    failed = {"route": "precise", "upstream": _LARGE, "code": "upstream_broken"}
    before = await fleet.metric("dabom_fallbacks_total", **failed)
    large.well = False
    picture = _picture(96, 64, 1)
    answer = await fleet.post(_request("auto", "describe", picture, stream=stream))
    assert answer.status == 200
    assert answer.hops == [
        "precise;reason=auto",
        f"{_LARGE};failed=upstream_broken",
        f"{_SMALL};status=200",
    ]
    direct = await fleet.post(_request("auto-fast", "describe", picture))
    assert (answer.spoken if stream else answer.text) == direct.text
    assert await fleet.metric("dabom_fallbacks_total", **failed) == before + 1
    record = await fleet.record(answer)
    assert record["hops"] == [f"{_LARGE};failed=upstream_broken"]
    assert (record["key"], record["route"], record["upstream"]) == (KEY_ID, "precise", _SMALL)
    (shown,) = record["media"]
    assert (shown["kind"], shown["width"], shown["height"]) == ("image", 96, 64)


async def test_what_llama_cpp_finds_too_long_goes_to_one_with_more_room(fleet: ExampleFleet) -> None:
    """Letters of no word are a token each, which the gateway cannot know."""
    answer = await fleet.post(_request("auto", "qzx" * 400))
    assert answer.status == 200
    assert answer.hops == ["chat;reason=auto", f"{_MLX};failed=http_400", f"{_TEXT};status=200"]
    assert answer.usage["prompt_tokens"] > _NARROW


async def test_what_nobody_has_room_for_is_told_as_llama_cpp_tells_it(fleet: ExampleFleet) -> None:
    answer = await fleet.post(_request("auto", "qzx" * 2000))
    assert answer.status == 400
    assert answer.hops == ["chat;reason=auto", f"{_MLX};failed=http_400", f"{_TEXT};status=400"]
    assert answer.error["type"] == "exceed_context_size_error"


async def test_what_can_never_fit_is_refused_before_llama_cpp_reads_it(
    fleet: ExampleFleet, text_url: str
) -> None:
    """By the room that the server told of itself."""
    before = await _prompt_tokens(text_url)
    answer = await fleet.post(_request("auto-thinking", "describe", max_tokens=_WIDE + 1))
    assert (answer.status, answer.error["code"]) == (400, "prompt_too_long")
    assert (answer.error["limit"], answer.error["largest"]) == (_WIDE, "answer")
    assert await _prompt_tokens(text_url) == before
    pictures = [_picture(1344, 1344, seed) for seed in range(3)]
    answer = await fleet.post(_request("auto-fast", "compare", *pictures))
    assert (answer.status, answer.error["code"]) == (400, "prompt_too_long")
    assert (answer.error["limit"], answer.error["largest"]) == (_SEEING, "image 1")
    assert (await fleet.record(answer))["tokens"]["prompt"] is None


@pytest.mark.parametrize("size", [(1999, 1501), (896, 896), (640, 352)])
async def test_a_picture_costs_what_was_predicted(fleet: ExampleFleet, size: tuple[int, int]) -> None:
    text = await fleet.post(_request(_SMALL, "describe"))
    seen = await fleet.post(_request(_SMALL, "describe", _picture(*size)))
    assert text.status == seen.status == 200
    if size[0] * size[1] > _SMALL_PIXELS:
        assert seen.headers["X-Dabom-Media"] == "0;was=1999x1501;now=1024x768"
    else:
        assert "X-Dabom-Media" not in seen.headers
    lines = [await fleet.line(answer) for answer in (seen, text)]
    grown = {key: lines[0][key] - lines[1][key] for key in ("predicted_tokens", "prompt_tokens")}
    assert grown["predicted_tokens"] == grown["prompt_tokens"]


async def test_options_that_llama_cpp_does_not_read_do_not_count(fleet: ExampleFleet) -> None:
    """With them a vLLM would take 3,936 tokens for the picture, for which there is no room here."""
    picture, options = _picture(640, 480), {"mm_processor_kwargs": {"min_pixels": 4_000_000}}
    plain = await fleet.post(_request(_SMALL, "describe", picture))
    answer = await fleet.post(_request(_SMALL, "describe", picture, **options))
    assert answer.status == 200, answer.body
    assert answer.usage["prompt_tokens"] == plain.usage["prompt_tokens"]
    lines = [await fleet.line(one) for one in (plain, answer)]
    assert lines[0]["predicted_tokens"] == lines[1]["predicted_tokens"]


async def test_a_batch_is_spread_over_the_fleet(fleet: ExampleFleet) -> None:
    bodies = [
        _request("auto", "describe"),
        _request("auto-fast", "x", _picture(96, 64)),
        _request(_TEXT, "x"),
    ]
    items = [{"id": str(number), "body": body} for number, body in enumerate(bodies)]
    answer = await fleet.post({"items": items}, "/chat/batch")
    assert [line for line in answer.lines if line["status"] != 200] == []
    lines = [await fleet.line(answer, number) for number in (1, 2, 3)]
    assert [line["upstream"] for line in lines] == [_MLX, _SMALL, _TEXT]


async def test_metrics_tell_of_it(fleet: ExampleFleet) -> None:
    answer: Answer = await fleet.post(_request("auto-fast", "describe", _picture(1999, 1501)))
    assert answer.status == 200
    labels = {"route": _SMALL, "upstream": _SMALL, "modality": "image"}
    assert await fleet.metric("dabom_requests_total", **labels, status="200") >= 1
    assert await fleet.metric("dabom_prompt_tokens_ratio_count", **labels) >= 1
    assert await fleet.metric("dabom_pictures_normalised_total", route=_SMALL) >= 1
    assert await fleet.metric("dabom_key_tokens_total", key=KEY_ID, kind="prompt") > 0
    assert await fleet.metric("dabom_tokens_in_flight") == 0
    assert await fleet.metric("dabom_token_budget", upstream=_SMALL) == 24_576
    assert await fleet.metric("dabom_audit_records_total", outcome="written") > 0
