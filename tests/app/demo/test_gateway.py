from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from dabom.app.demo import started_gateway
from dabom.app.demo.gateway import free_port
from dabom.client import Client, Item, request, user
from dabom.errors import Refused, StartFailed
from dabom.testing import (
    ScriptedUpstream,
    Seen,
    Step,
    chat_answer,
    chat_events,
    cut_at,
    json_reply,
    sent_bytes,
    sse_reply,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def _upstream(seen: Seen) -> list[Step]:
    body = seen.json()
    question = body["messages"][0]["content"]
    if not body.get("stream"):
        return json_reply(chat_answer(question))
    whole = sse_reply(chat_events("안", "녕"))
    return cut_at(whole, len(sent_bytes(whole)) - 60) if question == "cut" else whole


async def _stream(client: Client, question: str) -> list[str]:
    async with aclosing(client.stream(request(user(question), model="qwen"))) as deltas:
        return [delta.text async for delta in deltas]


async def test_the_client_through_a_real_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedUpstream(_upstream) as upstream:
        monkeypatch.setenv("VLLM_BASE_URL", upstream.url)
        async with started_gateway(tmp_path / "log", free_port()) as url, Client(url) as client:
            health = await client.health()
            assert (health.ok, health.path) == (True, "/healthz")
            assert [model.id for model in await client.models()] == ["qwen"]
            answer = await client.ask(request(user("안녕"), model="qwen"), path="/chat")
            assert answer.text == "안녕"
            assert answer.request_id
            assert await _stream(client, "안녕") == ["안", "녕"]
            with pytest.raises(Refused) as caught:
                await _stream(client, "cut")
            assert caught.value.code == "upstream_broken"
            await _check_batches(client)
        assert not await _listens(url)


async def _check_batches(client: Client) -> None:
    items = [Item(f"i{n}", request(user(f"질문 {n}"), model="qwen")) for n in range(9)]
    async with client.batch(items) as lines:
        assert lines.total == 9
        texts = {line.id: line.answer().text async for line in lines}
    assert texts == {f"i{n}": f"질문 {n}" for n in range(9)}

    answered = asyncio.Event()

    async def source() -> AsyncIterator[Item]:
        yield items[0]
        await answered.wait()  # the second item goes up only after the first answer has come down
        yield items[1]

    ids = []
    async with client.batch_stream(source()) as lines:
        async for line in lines:
            ids.append(line.id)
            answered.set()
    assert ids == ["i0", "i1"]
    with pytest.raises(Refused, match="id"):
        async with client.batch([items[0], items[0]]):
            pass


async def _listens(url: str) -> bool:
    async with Client(url) as client:
        return await client.ready()


async def test_a_gateway_that_ends_at_once_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CONCURRENCY", "many")
    with pytest.raises(StartFailed, match="exit code 2"):
        async with started_gateway(tmp_path / "log", free_port()):
            pass
    assert "VLLM_CONCURRENCY" in (tmp_path / "log").read_text()


def test_a_taken_port_is_not_chosen() -> None:
    port = free_port()
    assert port > 0
    assert free_port(port) == port
