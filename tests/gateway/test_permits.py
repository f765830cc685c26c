"""One pool of permits per upstream, shared by all routes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from dabom.testing import ScriptedUpstream, WaitFor, chat_answer, json_reply

if TYPE_CHECKING:
    from tests.gateway.conftest import Behind, Run

    from dabom.testing import Seen, Step

_SOON_S = 10


class Gate:
    """A script that answers a request when the test lets it."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    def __call__(self, seen: Seen) -> list[Step]:
        return [WaitFor(self.opened), *json_reply(chat_answer())]


async def test_four_run_unless_told_otherwise(behind: Behind, chat: dict[str, Any]) -> None:
    gate = Gate()
    async with behind(gate) as (upstream, gw), asyncio.TaskGroup() as group:
        asked = [group.create_task(gw.ask("/chat", chat)) for _ in range(7)]
        await gw.until(lambda: gw.permits.waiting == 3)
        await upstream.wait_seen(4)
        assert (len(upstream.seen), gw.permits.held) == (4, 4)
        gate.opened.set()
        assert [(await task).status for task in asked] == [200] * 7
        assert len(upstream.seen) == 7


async def test_all_routes_share_one_pool(behind: Behind, chat: dict[str, Any]) -> None:
    gate = Gate()
    batch = {"items": [{"id": str(n), "body": chat} for n in range(3)]}
    most = 0

    def script(seen: Seen) -> list[Step]:
        nonlocal most
        most = max(most, upstream.busy)
        return gate(seen)

    async with behind(script, concurrency=2) as (upstream, gw), asyncio.TaskGroup() as group:
        routes = [("/chat", chat), ("/v1/chat/completions", chat), ("/chat/batch", batch)]
        routes += [("/v1/embeddings", {"input": "x"}), ("/chat", {**chat, "stream": True})]
        asked = []
        for count, (path, body) in enumerate(routes, 1):
            asked.append(group.create_task(gw.ask(path, body)))
            await gw.until(lambda count=count: gw.permits.held + gw.permits.waiting >= count)  # type: ignore[misc]
        assert (gw.permits.held, gw.permits.waiting) == (2, 3)  # a batch takes one place in the queue
        gate.opened.set()
        assert [(await task).status for task in asked] == [200] * 5
        assert len(upstream.seen) == 4 + 3
        assert most == 2


@pytest.mark.parametrize(
    ("headers", "order"),
    [
        ([("x-dabom-priority", "normal")], ["item", "item", "single"]),
        ([], ["item", "single", "item"]),
    ],
)
async def test_items_of_a_batch_make_way_unless_told_otherwise(
    behind: Behind, headers: list[tuple[str, str]], order: list[str]
) -> None:
    gate = Gate()
    async with behind(gate, concurrency=1) as (upstream, gw), asyncio.TaskGroup() as group:
        items = [{"id": n, "body": {"model": "item", "messages": []}} for n in range(5)]
        group.create_task(gw.ask("/chat/batch", {"items": items}, headers=headers))
        await upstream.wait_seen(1)
        await gw.until(lambda: gw.permits.waiting == 1)
        group.create_task(gw.ask("/chat", {"model": "single", "messages": []}))
        await gw.until(lambda: gw.permits.waiting == 2)  # one for the whole batch, one for the request
        gate.opened.set()
        await upstream.wait_seen(6)
        assert [seen.json()["model"] for seen in upstream.seen][:3] == order


async def test_the_excess_waits_in_order(behind: Behind) -> None:
    gate = Gate()
    async with behind(gate, concurrency=1) as (upstream, gw), asyncio.TaskGroup() as group:
        for number in range(12):
            path = "/chat" if number % 2 else "/v1/chat/completions"
            group.create_task(gw.ask(path, {"messages": [], "n": number}))
            await gw.until(lambda number=number: gw.permits.waiting == number)  # type: ignore[misc]
            if not number:
                await upstream.wait_seen(1)
        gate.opened.set()
        await upstream.wait_seen(12)
        assert [seen.json()["n"] for seen in upstream.seen] == list(range(12))


async def test_each_upstream_has_a_pool_of_its_own(running_gateway: Run) -> None:
    gate = Gate()
    async with ScriptedUpstream(gate, models=["a"]) as one, ScriptedUpstream(models=["b"]) as other:
        upstreams = [{"url": one.url, "concurrency": 1}, {"url": other.url}]
        async with running_gateway(upstreams=upstreams) as gw, asyncio.TaskGroup() as group:
            blocked = [group.create_task(gw.ask("/chat", {"model": "a", "messages": []})) for _ in range(3)]
            await one.wait_seen(1)
            await gw.until(lambda: gw.gateway.fleet.upstreams[0].permits.waiting == 2)
            assert (await gw.ask("/chat", {"model": "b", "messages": []})).status == 200
            assert [up.permits.limit for up in gw.gateway.fleet.upstreams] == [1, 4]
            assert len(one.seen) == 1
            gate.opened.set()
            assert [(await task).status for task in blocked] == [200] * 3


async def test_elapsed_ms_leaves_the_queue_out(behind: Behind, chat: dict[str, Any]) -> None:
    gate = Gate()
    async with behind(gate, concurrency=1) as (_, gw), gw.wire() as first, gw.wire() as wire:
        await first.request("/chat", msgspec.json.encode(chat))
        await gw.until(lambda: gw.permits.held == 1)
        body = msgspec.json.encode({"items": [{"id": "1", "body": chat}]})
        asked = time.monotonic()
        kind = [("content-type", "application/json"), ("x-request-id", "batch")]
        await wire.request("/chat/batch", body, headers=kind)
        await gw.until(lambda: gw.permits.waiting == 1)
        await asyncio.sleep(0.3)
        opened = time.monotonic()
        gate.opened.set()
        line = msgspec.json.decode(await wire.until(b"\n"))
        since_opened_ms = (time.monotonic() - opened) * 1000
        assert 0 <= line["elapsed_ms"] <= since_opened_ms + 1
        await wire.rest()
        logged = await gw.line("batch-1")
        assert 290 <= logged["queue_ms"] <= (opened - asked) * 1000 + since_opened_ms
        assert logged["first_byte_ms"] <= since_opened_ms + 1


async def test_waiting_too_long_fails_that_request_alone(behind: Behind, chat: dict[str, Any]) -> None:
    gate = Gate()
    async with (
        behind(gate, concurrency=1, acquire_timeout_s=0.2) as (upstream, gw),
        asyncio.TaskGroup() as group,
    ):
        running = group.create_task(gw.ask("/chat", chat))
        await upstream.wait_seen(1)
        asked = time.monotonic()
        late = await gw.ask("/v1/chat/completions", chat, headers=[("x-request-id", "late")])
        assert time.monotonic() - asked >= 0.199
        assert (late.status, late.error["code"], late.error["type"]) == (
            503,
            "queue_timeout",
            "unavailable_error",
        )
        assert int(late.header("retry-after") or "") >= 1
        assert (await gw.line("late"))["code"] == "queue_timeout"
        assert len(upstream.seen) == 1
        gate.opened.set()
        assert (await running).status == 200
        assert (await gw.ask("/chat", chat)).status == 200


async def test_those_behind_a_late_one_keep_their_turn(behind: Behind, chat: dict[str, Any]) -> None:
    gate = Gate()
    async with (
        behind(gate, concurrency=1, acquire_timeout_s=_SOON_S) as (upstream, gw),
        gw.wire() as leaving,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(gw.ask("/chat", chat))
        await upstream.wait_seen(1)
        await leaving.request("/chat", msgspec.json.encode(chat))
        await gw.until(lambda: gw.permits.waiting == 1)
        behind_it = group.create_task(gw.ask("/chat", chat))
        await gw.until(lambda: gw.permits.waiting == 2)
        leaving.leave()
        await gw.until(lambda: gw.permits.waiting == 1)
        gate.opened.set()
        assert (await behind_it).status == 200
        assert len(upstream.seen) == 2


async def test_asking_for_a_state_needs_no_permit(behind: Behind, chat: dict[str, Any]) -> None:
    gate = Gate()

    def script(seen: Seen) -> list[Step]:
        return gate(seen) if seen.method == "POST" else json_reply({})

    async with behind(script, concurrency=1) as (upstream, gw), asyncio.TaskGroup() as group:
        group.create_task(gw.ask("/chat", chat))
        await upstream.wait_seen(1)
        for path in ("/v1/models", "/v1/files", "/readyz", "/healthz", "/metrics"):
            assert (await gw.ask(path)).status == 200
        gate.opened.set()


@pytest.mark.parametrize("path", ["/chat", "/v1/audio/transcriptions"])
async def test_metrics_tell_the_state_of_the_pool(behind: Behind, path: str) -> None:
    gate = Gate()
    async with behind(gate, concurrency=1) as (upstream, gw), asyncio.TaskGroup() as group:
        kind = "application/json" if path == "/chat" else "multipart/form-data; boundary=b"
        for _ in range(2):
            body = b'{"messages":[]}' if path == "/chat" else b"--b--\r\n"
            group.create_task(gw.ask(path, body, headers=[("content-type", kind)]))
        await gw.until(lambda: gw.permits.waiting == 1)
        await upstream.wait_seen(1)
        text = (await gw.ask("/metrics")).body.decode()
        name = f'{{upstream="127.0.0.1:{upstream.port}"}}'
        for line in ("permits_held%s 1.0", "permits_waiting%s 1.0", "permits_limit%s 1.0"):
            assert f"dabom_{line % name}\n" in text
        gate.opened.set()
