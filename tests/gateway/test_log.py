"""One JSON line per request: what happened, how large and how long, and nothing that anyone said."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from dabom.gateway.scan import DIGEST_BYTES
from dabom.testing import (
    Stall,
    Wait,
    WaitFor,
    chat_answer,
    chat_events,
    error_reply,
    json_reply,
    refusing_upstream,
    sse_reply,
)

if TYPE_CHECKING:
    from tests.gateway.conftest import Behind, Run

_JSON = [("content-type", "application/json")]
_MINE = [("x-request-id", "mine")]


def _png(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Image.effect_noise((width, height), 90).convert("RGB").save(file, "PNG")
    return file.getvalue()


def _with_media(octets: bytes) -> tuple[dict[str, Any], str]:
    uri = "data:image/png;base64," + base64.b64encode(octets).decode()
    part = {"type": "image_url", "image_url": {"url": uri}}
    return {"model": "qwen", "stream": False, "messages": [{"role": "user", "content": [part]}]}, uri


@pytest.mark.parametrize("size", [(20, 10), (500, 300)], ids=["small", "flowing"])
async def test_a_request_has_one_line_with_its_facts(behind: Behind, size: tuple[int, int]) -> None:
    picture = _png(*size)
    body, uri = _with_media(picture)
    octets = json.dumps(body).encode()
    async with behind([Wait(0.05), *json_reply(chat_answer())]) as (upstream, gw):
        answer = await gw.ask("/v1/chat/completions", octets, headers=_MINE)
        line = await gw.line("mine")
        assert [one["request_id"] for one in gw.log.lines] == ["mine"]
        assert line["path"] == "/v1/chat/completions"
        assert line["method"] == "POST"
        assert line["upstream"] == f"127.0.0.1:{upstream.port}"
        assert line["model"] == "qwen"
        assert line["status"] == 200
        assert (line["bytes_in"], line["bytes_out"]) == (len(octets), len(answer.body))
        assert "code" not in line
        assert 45 <= line["first_byte_ms"] <= line["total_ms"] + 2  # two clocks, one of whole milliseconds
        assert line["time"] > 1_700_000_000
        assert line["media"] == [
            {
                "kind": "image",
                "mime": "image/png",
                "bytes": len(picture),
                "sha256_head": hashlib.sha256(uri.encode()[:DIGEST_BYTES]).hexdigest()[:16],
                "width": size[0],
                "height": size[1],
            }
        ]


async def test_a_stream_is_logged_when_it_is_over(behind: Behind) -> None:
    gate = asyncio.Event()
    script = [*sse_reply(chat_events("a", "b"))[:2], WaitFor(gate), *sse_reply(chat_events("a", "b"))[2:]]
    async with behind(script) as (_, gw), gw.wire() as wire:
        body = b'{"model":"qwen","stream":true}'
        await wire.request("/chat", body, headers=[*_JSON, ("x-request-id", "mine")])
        await wire.until(b"data:")
        assert not gw.log.lines
        gate.set()
        answer = await wire.rest()
        line = await gw.line("mine")
        assert line["stream"] is True
        assert line["bytes_out"] == len(answer.body)


async def test_time_in_the_queue_is_told_apart(behind: Behind) -> None:
    async with behind(concurrency=1) as (_, gw):
        await gw.permits.acquire(1)
        asking = asyncio.create_task(gw.ask("/chat", {"model": "qwen"}, headers=_MINE))
        await gw.until(lambda: gw.permits.waiting == 1)
        await asyncio.sleep(0.2)
        gw.permits.release()
        await asking
        line = await gw.line("mine")
        assert line["queue_ms"] >= 195
        assert line["total_ms"] >= line["queue_ms"] + line["first_byte_ms"] - 5
        assert line["first_byte_ms"] < line["queue_ms"] + 500


async def test_the_wait_of_a_request_that_got_no_permit_is_logged(behind: Behind) -> None:
    async with behind(concurrency=1, acquire_timeout_s=0.2) as (_, gw):
        await gw.permits.acquire(1)
        assert (await gw.ask("/chat", {"model": "qwen"}, headers=_MINE)).status == 503
        gw.permits.release()
        line = await gw.line("mine")
        assert line["code"] == "queue_timeout"
        assert line["queue_ms"] >= 195


async def test_each_item_of_a_batch_has_a_line_and_so_has_the_batch(behind: Behind) -> None:
    items = [{"id": n, "body": {"model": f"m{n}"}} for n in range(3)]
    async with behind() as (_, gw):
        batch = json.dumps({"items": items}).encode()
        answer = await gw.ask("/chat/batch", batch, headers=_MINE)
        line = await gw.line("mine")
        assert (line["path"], line["items"], line["status"]) == ("/chat/batch", 3, 200)
        assert (line["bytes_in"], line["bytes_out"]) == (len(batch), len(answer.body))
        for number in (1, 2, 3):
            item = await gw.line(f"mine-{number}")
            assert (item["path"], item["model"], item["status"]) == (
                "/chat/batch item",
                f"m{number - 1}",
                200,
            )
            assert item["bytes_in"] == len(f'{{"model": "m{number - 1}"}}')
        assert len(gw.log.lines) == 4


async def test_an_item_that_reaches_no_upstream_has_a_line_and_a_count(behind: Behind) -> None:
    async with behind() as (upstream, gw):
        batch = json.dumps({"items": [{"id": "s", "body": {"model": "m", "stream": True}}]}).encode()
        await gw.ask("/chat/batch", batch, headers=_MINE)
        item = await gw.line("mine-1")
        assert (item["status"], item["code"], item["model"]) == (400, "invalid_request", "m")
        metrics = (await gw.ask("/metrics")).body.decode()
        assert 'dabom_batch_items_total{status="400"} 1.0' in metrics
        assert not upstream.seen


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/chat", b"nope", 400, "invalid_json"),
        ("/chat", b'{"model":"' + b"x" * 3000 + b'"}', 413, "body_too_large"),
        ("/chat/batch", b'{"items":[]}', 400, "invalid_request"),
    ],
)
async def test_refusals_are_logged_with_their_code(
    behind: Behind, path: str, body: bytes, status: int, code: str
) -> None:
    async with behind(max_body_bytes=2000) as (_, gw):
        await gw.ask(path, body, headers=_MINE)
        line = await gw.line("mine")
        assert (line["status"], line["code"]) == (status, code)


async def test_what_is_no_http_is_logged_and_counted(behind: Behind) -> None:
    async with behind() as (_, gw):
        async with gw.wire() as wire:
            await wire.send(b"nonsense\r\n\r\n")
            answer = (await wire.closed()).decode()
        ident = answer.partition("x-request-id: ")[2].partition("\r\n")[0]
        line = await gw.line(ident)
        assert (line["status"], line["code"]) == (400, "invalid_request")
        metrics = (await gw.ask("/metrics")).body.decode()
        labels = 'modality="text",path="refused",route="",status="400",upstream=""'
        assert f"dabom_requests_total{{{labels}}} 1.0" in metrics


async def test_faults_of_the_upstream_are_logged(behind: Behind, running_gateway: Run) -> None:
    async with behind(error_reply(422)) as (_, gw):
        await gw.ask("/chat", {"model": "qwen"}, headers=_MINE)
        assert (await gw.line("mine"))["status"] == 422
    async with behind([Stall()], first_byte_timeout_s=0.1) as (_, gw):
        await gw.ask("/chat", {"model": "qwen"}, headers=_MINE)
        line = await gw.line("mine")
        assert (line["status"], line["code"]) == (504, "first_byte_timeout")
        assert line["total_ms"] >= 95
    with refusing_upstream() as url:
        async with running_gateway(url) as gw:
            await gw.ask("/chat", {"model": "qwen"}, headers=_MINE)
            assert (await gw.line("mine"))["code"] == "upstream_unreachable"


async def test_a_client_that_left_is_logged(behind: Behind) -> None:
    async with behind([Stall()]) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", b'{"model":"qwen"}', headers=[*_JSON, ("x-request-id", "mine")])
        await upstream.wait_seen()
        wire.leave()
        line = await gw.line("mine")
        assert (line["status"], line["code"], line["model"]) == (499, "client_gone", "qwen")


async def test_pages_are_logged_too(behind: Behind) -> None:
    async with behind() as (_, gw):
        answer = await gw.ask("/healthz", headers=_MINE)
        assert answer.header("x-request-id") == "mine"
        line = await gw.line("mine")
        assert (line["path"], line["method"], line["status"]) == ("/healthz", "GET", 200)


async def test_metrics_count_what_the_log_tells(behind: Behind) -> None:
    body, _ = _with_media(_png(20, 10))
    async with behind() as (upstream, gw):
        await gw.ask("/chat", body)
        await gw.ask("/chat", b"nope")
        await gw.ask("/chat/batch", {"items": [{"id": 1, "body": body}]})
        await gw.ask("/" + "unknown" * 3)
        text = (await gw.ask("/metrics")).body.decode()
        name = f"127.0.0.1:{upstream.port}"
        labels = f'modality="image",path="/chat",route="",status="200",upstream="{name}"'
        assert f"dabom_requests_total{{{labels}}} 1.0" in text
        assert 'dabom_errors_total{code="invalid_json",route="",upstream=""} 1.0' in text
        assert 'dabom_media_total{kind="image"} 2.0' in text
        assert 'dabom_batch_items_total{status="200"} 1.0' in text
        assert f'dabom_permits_limit{{upstream="{name}"}} 4.0' in text
        assert f'dabom_permits_held{{upstream="{name}"}} 0.0' in text
        assert f'dabom_first_byte_seconds_count{{modality="image",route="",upstream="{name}"}}' in text
        assert "unknown" not in text  # no client invents a label


async def test_no_line_is_lost_when_many_come_at_once(behind: Behind) -> None:
    async with behind() as (_, gw):
        await asyncio.gather(
            *(gw.ask("/chat", b"{", headers=[("x-request-id", f"n{n}")]) for n in range(300))
        )
        for n in range(300):
            await gw.line(f"n{n}")
        assert len(gw.log.lines) == 300
