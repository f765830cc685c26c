from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from dabom.client import Client, Item, Line, request, user
from dabom.errors import AnswerBroken, Refused
from dabom.testing import (
    AwaitBody,
    Close,
    ScriptedUpstream,
    Send,
    WaitFor,
    chat_answer,
    chunk,
    cut_at,
    drip,
    error_reply,
    head,
    raw_reply,
    sent_bytes,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from dabom.testing import Step

_KIND = [("content-type", "application/x-ndjson")]


def _items(*ids: str) -> list[Item]:
    return [Item(id_, request(user(f"질문 번호는 이것입니다 {id_}"), model="qwen")) for id_ in ids]


def _line(id_: str, status: int = 200, **fields: Any) -> bytes:
    return msgspec.json.encode({"id": id_, "status": status, "elapsed_ms": 5, **fields}) + b"\n"


def _reply(lines: Sequence[bytes], total: int | None) -> list[Step]:
    headers = [*_KIND, ("X-Request-Id", "b1")]
    if total is not None:
        headers.append(("X-Batch-Total", str(total)))
    return raw_reply(list(lines), headers=headers, chunked=True)


async def _read(client: Client, items: list[Item]) -> tuple[int | None, list[Line]]:
    async with client.batch(items) as lines:
        return lines.total, [line async for line in lines]


async def _read_streamed(client: Client, items: AsyncIterator[Item]) -> list[Line]:
    async with client.batch_stream(items) as lines:
        return [line async for line in lines]


async def test_lines_come_in_the_order_of_arrival() -> None:
    failed = _line("a", 400, error={"error": {"message": "bad", "type": "BadRequestError", "code": 400}})
    script = _reply([_line("b", body=chat_answer("답")), b"\n", failed], total=2)
    async with ScriptedUpstream(drip(script, 9)) as upstream, Client(upstream.root) as client:
        total, lines = await _read(client, _items("a", "b"))
    assert total == 2
    assert [(line.id, line.ok, line.status) for line in lines] == [("b", True, 200), ("a", False, 400)]
    assert lines[0].answer().text == "답"
    assert json.loads(lines[0].body) == chat_answer("답")
    with pytest.raises(Refused, match="bad") as caught:
        lines[1].answer()
    assert (caught.value.status, caught.value.code) == (400, "BadRequestError")
    seen = upstream.seen[0]
    assert (seen.path, seen.header("content-type")) == ("/chat/batch", "application/json")
    bodies = {item.id: json.loads(item.request.body) for item in _items("a", "b")}
    assert seen.json() == {"items": [{"id": id_, "body": body} for id_, body in bodies.items()]}


async def test_our_own_faults_have_a_code_and_hide_the_prompt() -> None:
    items = _items("a", "b")
    script = _reply(
        [
            _line("a", 503, error="no permit in 300 s", code="queue_timeout"),
            _line("b", 500, error=f"echo: {items[1].request.prompts[0]}"),
        ],
        total=2,
    )
    async with ScriptedUpstream(script) as upstream, Client(upstream.root) as client:
        _, lines = await _read(client, items)
    with pytest.raises(Refused, match="no permit") as caught:
        lines[0].answer()
    assert caught.value.code == "queue_timeout"
    with pytest.raises(Refused) as caught:
        lines[1].answer()
    assert "질문 번호" not in str(caught.value)


async def test_a_batch_that_breaks_off_never_looks_finished() -> None:
    whole = _reply([_line("a", body=chat_answer())], total=2)
    half = cut_at(whole, len(sent_bytes(whole)) - 30, Close())
    inside = _reply([_line("a", body=chat_answer()), b'{"id":"b","sta'], total=None)
    for script, message in ((whole, "1 of 2"), (half, "broke off"), (inside, "not the expected JSON")):
        async with ScriptedUpstream(script) as upstream, Client(upstream.root) as client:
            with pytest.raises(AnswerBroken, match=message) as caught:
                await _read(client, _items("a", "b"))
        assert caught.value.request_id == "b1"


async def test_a_refused_batch_is_one_error() -> None:
    async with (
        ScriptedUpstream(error_reply(413, "129 items; at most 128")) as upstream,
        Client(upstream.root) as client,
    ):
        with pytest.raises(Refused, match="at most 128"):
            await _read(client, _items("a"))


async def test_streamed_items_are_answered_while_more_go_up() -> None:
    first_seen = asyncio.Event()
    second_sent = asyncio.Event()
    closed = asyncio.Event()

    async def source() -> AsyncIterator[Item]:
        one, two = _items("a", "b")
        try:
            yield one
            await first_seen.wait()  # goes on only when the first line has come back
            second_sent.set()
            yield two
        finally:
            closed.set()

    script: list[Step] = [
        Send(head(200, [*_KIND, ("transfer-encoding", "chunked")])),
        Send(chunk(_line("a", body=chat_answer("1")))),
        WaitFor(second_sent),
        AwaitBody(),
        Send(chunk(_line("b", body=chat_answer("2"))) + chunk(b"")),
    ]
    async with (
        ScriptedUpstream(before_body=script) as upstream,
        Client(upstream.root) as client,
        client.batch_stream(source()) as lines,
    ):
        assert lines.total is None
        ids = []
        async for line in lines:
            ids.append(line.id)
            first_seen.set()
    assert ids == ["a", "b"]
    assert closed.is_set()
    seen = upstream.seen[0]
    assert seen.header("content-type") == "application/x-ndjson"
    assert [json.loads(line)["id"] for line in seen.body.splitlines()] == ["a", "b"]


async def test_plain_iterators_do_as_well() -> None:
    async with (
        ScriptedUpstream(_reply([_line("a", body=chat_answer())], None)) as upstream,
        Client(upstream.root) as client,
        client.batch_stream(iter(_items("a"))) as lines,
    ):
        assert [line.id async for line in lines] == ["a"]
    assert upstream.seen[0].json()["body"]["model"] == "qwen"


async def test_a_fault_of_the_item_source_is_raised_as_it_is() -> None:
    async def source() -> AsyncIterator[Item]:
        yield _items("a")[0]
        raise LookupError("the disk is gone")

    async with ScriptedUpstream(_reply([], None)) as upstream, Client(upstream.root) as client:
        with pytest.raises(LookupError, match="the disk is gone"):
            await _read_streamed(client, source())


async def test_leaving_early_closes_source_and_connection() -> None:
    closed = asyncio.Event()

    async def source() -> AsyncIterator[Item]:
        try:
            yield _items("a")[0]
            await asyncio.Event().wait()
        finally:
            closed.set()

    script: list[Step] = [
        Send(head(200, [*_KIND, ("transfer-encoding", "chunked")])),
        Send(chunk(_line("a", body=chat_answer("1")))),
        AwaitBody(),
    ]
    async with ScriptedUpstream(before_body=script) as upstream, Client(upstream.root) as client:
        async with client.batch_stream(source()) as lines:
            async for _ in lines:
                break
        async with asyncio.timeout(2):
            await closed.wait()
        await upstream.wait_closed(within_s=2)
