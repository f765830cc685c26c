"""Admission as a client meets it: refusals with numbers, the order of the line, bytes in flight."""

from __future__ import annotations

import asyncio
import base64
import io
from typing import TYPE_CHECKING, Any

import msgspec
from PIL import Image

from dabom.testing import ScriptedUpstream, WaitFor, chat_answer, json_reply

if TYPE_CHECKING:
    from tests.gateway.conftest import Behind, Run

    from dabom.testing import Seen, Step

_TEXT = {"model": "qwen", "messages": [{"role": "user", "content": "안녕"}]}


def _picture(width: int, height: int) -> dict[str, Any]:
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    part = {"type": "image_url", "image_url": {"url": url}}
    return {"model": "qwen", "messages": [{"role": "user", "content": [part]}], "max_tokens": 16}


class Gate:
    """Answers when the test lets it, one after the other or all."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    def __call__(self, seen: Seen) -> list[Step]:
        return [WaitFor(self.opened), *json_reply(chat_answer())]


async def test_what_can_never_fit_reaches_no_upstream(running_gateway: Run) -> None:
    async with ScriptedUpstream() as upstream:
        one = {"url": upstream.url, "name": "vl", "family": "qwen3-vl", "max_model_len": 1024}
        async with running_gateway(upstreams=[one]) as gw:
            fits = await gw.ask("/chat", _picture(640, 480), headers=[("x-request-id", "fits")])
            assert fits.status == 200
            refused = await gw.ask("/v1/chat/completions", _picture(1344, 1344))
            assert (refused.status, refused.error["code"]) == (400, "prompt_too_long")
            assert refused.error["needed"] == 1764 + 2 + 16
            assert (refused.error["limit"], refused.error["largest"]) == (1024, "image 1")
            batch = {"items": [{"id": n, "body": _picture(n, 1344)} for n in (320, 1344)]}
            answer = await gw.ask("/chat/batch", batch)
            lines = {line["id"]: line for line in map(msgspec.json.decode, answer.body.splitlines())}
            assert lines[320]["status"] == 200
            assert (lines[1344]["status"], lines[1344]["code"]) == (400, "prompt_too_long")
            many = {"model": "qwen", "input": ["글 " * 2000] * 10}
            assert (await gw.ask("/v1/embeddings", many)).status == 200, "ten prompts, not one"
            assert len(upstream.seen) == 3
            assert (await gw.line("fits"))["predicted_tokens"] == 300 + 2 + 6
            text = (await gw.ask("/metrics")).body.decode()
            labels = '{modality="image",route="",upstream="vl"}'
            assert f"dabom_prompt_tokens_ratio_count{labels} 2.0\n" in text


async def test_tokens_in_flight_bound_what_runs(running_gateway: Run) -> None:
    gate = Gate()
    async with ScriptedUpstream(gate) as upstream:
        one = {"url": upstream.url, "concurrency": 8, "token_budget": 1000}
        async with running_gateway(upstreams=[one]) as gw, asyncio.TaskGroup() as group:
            body = {**_TEXT, "max_tokens": 300}
            asked = [group.create_task(gw.ask("/chat", body)) for _ in range(5)]
            await gw.until(lambda: gw.permits.waiting == 2)
            assert gw.permits.held == 3
            assert 900 < gw.permits.tokens <= 1000
            text = (await gw.ask("/metrics")).body.decode()
            name = f'{{upstream="127.0.0.1:{upstream.port}"}}'
            assert f"dabom_token_budget{name} 1000.0\n" in text
            assert f"dabom_tokens_in_flight{name} {gw.permits.tokens}.0\n" in text
            gate.opened.set()
            assert [(await task).status for task in asked] == [200] * 5


async def test_the_header_decides_who_is_next(behind: Behind) -> None:
    gate = Gate()
    async with behind(gate, concurrency=1) as (upstream, gw), asyncio.TaskGroup() as group:
        group.create_task(gw.ask("/chat", {**_TEXT, "n": "first"}))
        await upstream.wait_seen(1)
        for count, priority in enumerate(("batch", "normal", "realtime"), 1):
            headers = [("x-dabom-priority", priority)]
            group.create_task(gw.ask("/chat", {**_TEXT, "n": priority}, headers=headers))
            await gw.until(lambda count=count: gw.permits.waiting == count)  # type: ignore[misc]
        wrong = await gw.ask("/chat", _TEXT, headers=[("x-dabom-priority", "urgent")])
        assert (wrong.status, wrong.error["code"]) == (400, "invalid_request")
        gate.opened.set()
        await upstream.wait_seen(4)
        assert [seen.json()["n"] for seen in upstream.seen] == ["first", "realtime", "normal", "batch"]


async def test_a_full_line_is_a_429_with_a_time(behind: Behind) -> None:
    gate = Gate()
    async with (
        behind(gate, concurrency=1, admission={"max_queue": 1}) as (_, gw),
        asyncio.TaskGroup() as group,
    ):
        asked = [group.create_task(gw.ask("/chat", _TEXT)) for _ in range(2)]
        await gw.until(lambda: gw.permits.waiting == 1)
        refused = await gw.ask("/chat", _TEXT)
        assert (refused.status, refused.error["code"]) == (429, "queue_full")
        assert int(refused.header("retry-after") or "") == 5  # nothing has been measured yet
        gate.opened.set()
        assert [(await task).status for task in asked] == [200] * 2


async def test_a_body_is_not_read_while_there_is_no_room_for_it(behind: Behind) -> None:
    gate = Gate()
    limits = {"max_bytes_in_flight": 100_000}
    body = {**_TEXT, "user": "x" * 60_000}
    async with (
        behind(gate, admission=limits, acquire_timeout_s=10) as (upstream, gw),
        asyncio.TaskGroup() as group,
    ):
        bodies = gw.gateway.bodies
        first = group.create_task(gw.ask("/chat", body))
        await upstream.wait_seen(1)
        second = group.create_task(gw.ask("/v1/chat/completions", body))
        await gw.until(lambda: bodies.waiting == 1)
        assert (await gw.ask("/metrics")).body.decode().count(
            f"dabom_bytes_in_flight {bodies.tokens}.0\n"
        ) == 1
        assert 60_000 < bodies.tokens < 61_000
        small = group.create_task(gw.ask("/chat", _TEXT))
        await upstream.wait_seen(2)
        assert len(upstream.seen) == 2, "the small one has passed the large one"
        gate.opened.set()
        assert [(await task).status for task in (first, second, small)] == [200] * 3
        await gw.until(lambda: bodies.held == 0)
        assert bodies.tokens == 0


async def test_no_room_for_a_body_in_time_is_a_503(behind: Behind) -> None:
    gate = Gate()
    async with (
        behind(gate, admission={"max_bytes_in_flight": 100_000}, acquire_timeout_s=0.1) as (upstream, gw),
        asyncio.TaskGroup() as group,
    ):
        body = {**_TEXT, "user": "x" * 60_000}
        first = group.create_task(gw.ask("/chat", body))
        await upstream.wait_seen(1)
        late = await gw.ask("/chat", body)
        assert (late.status, late.error["code"]) == (503, "queue_timeout")
        assert "no room for a body of 60," in late.error["message"]
        gate.opened.set()
        assert (await first).status == 200


async def test_a_body_without_a_length_gives_back_what_it_does_not_need(behind: Behind) -> None:
    gate = Gate()
    async with behind(gate) as (upstream, gw), gw.wire() as wire:
        head = [("transfer-encoding", "chunked"), ("content-type", "application/json")]
        await wire.request("/chat", b"", headers=head)
        await gw.until(lambda: gw.gateway.bodies.tokens == gw.gateway.limits.max_body_bytes)
        text = msgspec.json.encode(_TEXT)
        await wire.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text))
        await upstream.wait_seen(1)
        assert gw.gateway.bodies.tokens == len(text)
        gate.opened.set()
        assert (await wire.rest()).status == 200
