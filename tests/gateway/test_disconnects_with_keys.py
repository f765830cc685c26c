"""Clients that leave while budgets, priorities, keys and the audit are on: nothing stays taken."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from dabom.gateway.keys import hash_line
from dabom.store import open_audit, verify
from dabom.testing import (
    ScriptedUpstream,
    Send,
    Stall,
    Wait,
    chat_answer,
    chat_events,
    chunk,
    head,
    json_reply,
    sse_event,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.gateway.conftest import Run, RunningGateway

    from dabom.testing.seen import Seen
    from dabom.testing.steps import Step

_REQUESTS = 300
_SECRETS = {name: f"dabom-{name}-0123456789-0123456789" for name in ("anna", "bora", "cho")}
_LIMITS: dict[str, dict[str, Any]] = {
    "anna": {"concurrency": 6, "priority": "realtime"},
    "bora": {"requests_per_minute": 60_000, "tokens_per_minute": 50_000_000},
    "cho": {"concurrency": 8, "priority": "batch", "tokens_per_minute": 40_000_000},
}
_PICTURE = "data:image/png;base64," + "A" * 50_000


def _script(seen: Seen) -> Sequence[Step]:
    """By the request: at once, late, never, or half of it."""
    kind = seen.header("x-kind")
    if kind == "late":
        return [Wait(0.01), *json_reply(chat_answer())]
    if kind == "silent":
        return [Stall()]
    if kind == "half":
        stream = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]
        return [Send(head(200, stream)), Send(chunk(sse_event(chat_events("a", "b")[0]))), Stall()]
    return json_reply(chat_answer())


def _request(chance: random.Random) -> tuple[str, bytes, str]:
    """Path, body and content type of a request that may be large, streamed, or a batch."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": "안녕 " * chance.choice((1, 50, 3000))}]
    if chance.random() < 0.3:
        parts.append({"type": "image_url", "image_url": {"url": _PICTURE}})
    one = {
        "model": "qwen",
        "messages": [{"role": "user", "content": parts}],
        "max_tokens": chance.choice((1, 300, 3000)),
        "stream": False,
    }
    shape = chance.random()
    if shape < 0.5:
        return "/chat", json.dumps(one | {"stream": chance.random() < 0.5}).encode(), "application/json"
    items = [{"id": number, "body": one} for number in range(chance.randrange(1, 6))]
    if shape < 0.75:
        return "/chat/batch", json.dumps({"items": items}).encode(), "application/json"
    return "/chat/batch", b"".join(msgspec.json.encode(i) + b"\n" for i in items), "application/x-ndjson"


async def _leave_somewhere(gw: RunningGateway, chance: random.Random) -> None:
    name = chance.choice(list(_SECRETS))
    path, body, kind = _request(chance)
    headers = [
        ("content-type", kind),
        ("authorization", f"Bearer {_SECRETS[name]}"),
        ("x-kind", chance.choice(("quick", "late", "silent", "half"))),
    ]
    if chance.random() < 0.5:
        headers.append(("x-dabom-priority", chance.choice(("realtime", "normal", "batch"))))
    sent = body if chance.random() < 0.8 else body[: chance.randrange(len(body))]
    stays, hard = chance.choice((0.0, 0.001, 0.01, 0.05)), chance.random() < 0.5
    async with gw.wire() as wire:
        try:
            async with asyncio.timeout(0.1):
                await wire.request(path, sent, headers=headers, length=len(body))
                await asyncio.sleep(stays)
        except (TimeoutError, ConnectionError):
            pass
        (wire.reset if hard else wire.leave)()


async def test_after_three_hundred_disconnects_nothing_is_taken(running_gateway: Run, tmp_path: Path) -> None:
    chance = random.Random(20_263)
    given: dict[str, Any] = {
        "keys": [{"id": name, "hash": hash_line(key), **_LIMITS[name]} for name, key in _SECRETS.items()],
        "audit": {"database": str(tmp_path / "audit.db")},
        "admission": {"aging_s": 0.02, "max_queue": 20, "max_bytes_in_flight": 400_000},
        "mask": ["resident_number"],
    }
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(ScriptedUpstream(_script))
        given["upstreams"] = [{"url": upstream.url, "concurrency": 3, "token_budget": 9000}]
        gw = await stack.enter_async_context(running_gateway(**given))
        room = asyncio.Semaphore(32)

        async def one() -> None:
            async with room:
                await _leave_somewhere(gw, chance)

        await asyncio.gather(*(one() for _ in range(_REQUESTS)))
        await gw.until(lambda: gw.gateway.running == 0)
        await upstream.wait_idle()
        (target,) = gw.gateway.fleet.upstreams
        assert (target.requests, target.tokens) == (0, 0)
        for permits in (target.permits, gw.gateway.bodies):
            assert (permits.held, permits.waiting, permits.tokens) == (0, 0, 0)
            assert permits.line.tokens_waiting == 0
        page = (await gw.ask("/metrics", headers={"authorization": f"Bearer {_SECRETS['anna']}"})).body
        told = dict(line.rsplit(b" ", 1) for line in page.splitlines() if not line.startswith(b"#"))
        assert [told[b'dabom_key_running{key="%b"}' % name.encode()] for name in _SECRETS] == [b"0.0"] * 3
        for name in ("permits_held", "permits_waiting", "tokens_in_flight"):
            assert told[b'dabom_%b{upstream="%b"}' % (name.encode(), target.name.encode())] == b"0.0"
        assert told[b"dabom_bytes_in_flight"] == b"0.0"
        requests = sum(
            float(count)
            for series, count in told.items()
            if series.startswith(b"dabom_requests_total") and b'path="page"' not in series
        )
    chain = open_audit(str(tmp_path / "audit.db"), read_only=True)
    found = verify(chain)
    chain.close()
    assert (found.faults, found.lost) == ((), 0)
    assert found.records == requests + 1  # the genesis
