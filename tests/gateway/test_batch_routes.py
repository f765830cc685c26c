"""Items of a batch along a route: none is lost, and nothing stays counted when their client leaves."""

from __future__ import annotations

import asyncio
import base64
import io
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from PIL import Image

from dabom.testing import ScriptedUpstream, Stall, WaitFor, chat_answer, json_reply, refusing_upstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.gateway.conftest import Run, RunningGateway

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)
TEXT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "a b c d e f g " * 400}]}
PICTURE: dict[str, Any] = {
    "model": "m",
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "a b c d e f g " * 400},
                {"type": "image_url", "image_url": {"url": PIXEL}},
            ],
        }
    ],
}
JSON, NDJSON = "application/json", "application/x-ndjson"


def batch(kind: str, *bodies: dict[str, Any]) -> bytes:
    items = [{"id": number, "body": body} for number, body in enumerate(bodies)]
    if kind == JSON:
        return msgspec.json.encode({"items": items})
    return b"".join(msgspec.json.encode(item) + b"\n" for item in items)


@asynccontextmanager
async def narrow_then_wide(running: Run, narrow: int) -> AsyncIterator[RunningGateway]:
    async with AsyncExitStack() as stack:
        ups = [
            await stack.enter_async_context(ScriptedUpstream(json_reply(chat_answer(f"u{number}"))))
            for number in range(narrow + 1)
        ]
        upstreams = [
            {"url": up.url, "name": f"u{number}", "model": "qwen", "max_model_len": 40 + number}
            for number, up in enumerate(ups)
        ]
        upstreams[-1]["max_model_len"] = 100_000
        names = [[one["name"]] for one in upstreams]
        given: dict[str, Any] = {"routes": {"r": {"steps": names}}, "models": {"m": "r"}}
        yield await stack.enter_async_context(running(upstreams=upstreams, **given))


@pytest.mark.parametrize("kind", [JSON, NDJSON])
@pytest.mark.parametrize("body", [TEXT, PICTURE], ids=["text", "picture"])
@pytest.mark.parametrize("narrow", [1, 2, 4])
async def test_an_item_that_is_too_long_for_the_first_targets_has_its_line(
    running_gateway: Run, narrow: int, body: dict[str, Any], kind: str
) -> None:
    async with narrow_then_wide(running_gateway, narrow) as gw:
        answer = await gw.ask("/chat/batch", batch(kind, body), headers={"content-type": kind})
        assert answer.status == 200
        lines = [msgspec.json.decode(line) for line in answer.body.splitlines()]
        said = [line["body"]["choices"][0]["message"]["content"] for line in lines]
        assert said == [f"u{narrow}"]


@pytest.mark.parametrize("body", [TEXT, PICTURE], ids=["text", "picture"])
async def test_a_client_that_leaves_a_batch_leaves_no_tokens_behind(
    running_gateway: Run, body: dict[str, Any]
) -> None:
    async with ScriptedUpstream([Stall()]) as up, running_gateway(up.url, concurrency=2) as gw:
        (upstream,) = gw.gateway.fleet.upstreams
        async with gw.wire() as wire:
            await wire.request("/chat/batch", batch(JSON, *[body] * 12), headers=[("content-type", JSON)])
            await gw.until(lambda: gw.permits.held == 2 and upstream.requests == 12)
            wire.reset()
            await gw.until(lambda: not gw.gateway.running)
        assert (upstream.requests, upstream.tokens) == (0, 0)


async def test_a_client_that_leaves_during_the_pause_before_a_retry(running_gateway: Run) -> None:
    with refusing_upstream() as url:
        upstreams = [{"url": url, "name": "gone", "model": "qwen"}]
        given: dict[str, Any] = {"routes": {"r": {"steps": [["gone"]]}}, "models": {"m": "r"}, "retries": 50}
        async with running_gateway(upstreams=upstreams, **given) as gw:
            (upstream,) = gw.gateway.fleet.upstreams
            async with gw.wire() as wire:
                await wire.request(
                    "/chat/batch", batch(JSON, TEXT, PICTURE), headers=[("content-type", JSON)]
                )
                await asyncio.sleep(0.6)
                wire.reset()
                await gw.until(lambda: not gw.gateway.running)
            await asyncio.sleep(0.4)
            assert (upstream.requests, upstream.tokens) == (0, 0)


async def test_a_batch_fetches_for_a_few_items_at_a_time(running_gateway: Run) -> None:
    fetched, png = 0, base64.b64decode(PIXEL.partition(",")[2])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal fetched
        await reader.readuntil(b"\r\n\r\n")
        fetched += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(png) + png)
        await writer.drain()
        writer.close()

    answer = asyncio.Event()
    steps = [WaitFor(answer), *json_reply(chat_answer())]
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a.png"
    part = {"type": "image_url", "image_url": {"url": url}}
    body = {"model": "qwen", "messages": [{"role": "user", "content": [part]}]}
    async with server, ScriptedUpstream(steps) as up:
        media = {"allow": ["127.0.0.0/8"]}
        async with running_gateway(up.url, concurrency=64, media=media) as gw, gw.wire() as wire:
            await wire.request("/chat/batch", batch(NDJSON, *[body] * 40), headers=[("content-type", NDJSON)])
            await up.wait_seen(8)
            await asyncio.sleep(0.1)
            assert (fetched, len(up.seen)) == (8, 8)
            answer.set()
            lines = [msgspec.json.decode(line) for line in (await wire.rest()).body.splitlines()]
        assert [line["status"] for line in lines] == [200] * 40


async def test_a_picture_that_is_to_be_scaled_does_not_wait_for_those_of_a_batch(
    running_gateway: Run,
) -> None:
    out = io.BytesIO()
    Image.effect_noise((1200, 1200), 80).convert("RGB").save(out, "PNG", compress_level=1)
    url = f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"
    part = {"type": "image_url", "image_url": {"url": url}}
    body = {"model": "qwen", "messages": [{"role": "user", "content": [part]}]}
    async with ScriptedUpstream() as up:
        upstreams = [{"url": up.url, "name": "u", "max_pixels": 10_000}]
        async with running_gateway(upstreams=upstreams, concurrency=64) as gw, gw.wire() as wire:
            await wire.request("/chat/batch", batch(JSON, *[body] * 16), headers=[("content-type", JSON)])
            await up.wait_seen(1, within_s=20)
            answer = await gw.ask("/chat", body)
            assert (answer.status, answer.header("x-dabom-media")) == (200, "0;was=1200x1200;now=100x100")
            assert len(up.seen) < 10, "it has waited for the batch"
            lines = [msgspec.json.decode(line) for line in (await wire.rest(30)).body.splitlines()]
        assert [line["status"] for line in lines] == [200] * 16
