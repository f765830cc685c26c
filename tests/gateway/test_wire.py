"""HTTP to the upstream: where answers end, and which connections may be used again."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from dabom.testing import (
    Close,
    ScriptedUpstream,
    Send,
    Stall,
    Wait,
    WaitFor,
    chat_answer,
    chunk,
    drip,
    error_reply,
    head,
    in_turn,
    json_reply,
    raw_reply,
    sse_reply,
)

if TYPE_CHECKING:
    from tests.gateway.conftest import Behind, Run

    from dabom.testing import Seen, Step

JSON = [("content-type", "application/json")]
CHUNKED = ("transfer-encoding", "chunked")
OK = json_reply(chat_answer())
BODY = msgspec.json.encode(chat_answer())
ENDLESS = b"x-pad: %b\r\n" % (b"x" * 4000)
# answers after which the connection is in order
REUSABLE: dict[str, list[Step]] = {
    "length": OK,
    "chunked": json_reply(chat_answer(), chunked=True),
    "trailers": [Send(head(200, [CHUNKED]) + chunk(b"{}") + b"0\r\nx-sum: 1\r\n\r\n")],
    "chunk extensions": [Send(head(200, [CHUNKED]) + b"2;a=b\r\n{}\r\n0\r\n\r\n")],
    "no content": [Send(head(204))],
    "empty": raw_reply(b""),
    "error": error_reply(400),
    "stream": sse_reply([{"n": 1}]),
    "after 100": [Send(head(100)), *OK],
    "after 100 and 103": [Send(head(100) + head(103, [("link", "</a>")])), Wait(0.02), *OK],
    "no reason": [Send(b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\n{}")],
    "byte by byte": drip(raw_reply(b"{}", headers=JSON), 1),
    "names in capitals": [Send(b"HTTP/1.1 200 OK\r\nCONTENT-LENGTH: 2\r\nContent-TYPE: a/b\r\n\r\n{}")],
}  # fmt: skip
# and after which it is not
SPENT: dict[str, list[Step]] = {
    "connection: close": json_reply(chat_answer(), headers=[("connection", "close")]),
    "to the end": [Send(head(200, JSON)), Send(BODY), Close()],
    "HTTP/1.0": [Send(b"HTTP/1.0 200 OK\r\n\r\n" + BODY), Close()],
    "HTTP/1.0 with a length": [Send(b"HTTP/1.0 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY))],
    "more than an answer": [Send(head(200, [("content-length", "2")]) + b"{}HTTP/1.1 201 A\r\n\r\nsmuggled")],
}  # fmt: skip
BROKEN: dict[str, list[Step]] = {
    "endless head": [Send(b"HTTP/1.1 200 OK\r\n"), *[Send(ENDLESS)] * 200, Stall()],
    "length and chunks": [Send(head(200, [("content-length", "2"), CHUNKED]) + chunk(b"{}"))],
    "switching protocols": [Send(head(101, [("connection", "upgrade"), ("upgrade", "h2c")])), Stall()],
    "only 100": [Send(head(100)), Close()],
    "HTTP/2": [Send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Stall()],
    "negative length": [Send(b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"), Stall()],
}  # fmt: skip


@pytest.mark.parametrize("how", REUSABLE)
async def test_a_connection_in_order_is_used_again(behind: Behind, chat: dict[str, Any], how: str) -> None:
    async with behind(REUSABLE[how]) as (upstream, gw):
        answers = [await gw.ask("/chat", chat) for _ in range(3)]
        assert {answer.whole for answer in answers} == {True}
        assert len({answer.body for answer in answers}) == 1
        assert upstream.connections_total == 1


@pytest.mark.parametrize("how", SPENT)
async def test_another_one_is_not(behind: Behind, chat: dict[str, Any], how: str) -> None:
    async with behind(SPENT[how]) as (upstream, gw):
        for count in range(1, 4):
            answer = await gw.ask("/chat", chat)
            assert (answer.status, answer.whole) == (200, True)
            assert b"smuggled" not in answer.body
            await upstream.wait_closed()
            assert upstream.connections_total == count


@pytest.mark.parametrize("how", BROKEN)
async def test_what_is_no_answer_is_told(behind: Behind, chat: dict[str, Any], how: str) -> None:
    async with behind(in_turn(BROKEN[how], OK), concurrency=1) as (upstream, gw):
        answer = await gw.ask("/chat", chat)
        assert (answer.status, answer.error["code"], answer.whole) == (502, "upstream_broken", True)
        await upstream.wait_closed()
        assert (await gw.ask("/chat", chat)).status == 200


async def test_a_body_whose_chunks_are_none_is_not_whole(behind: Behind, chat: dict[str, Any]) -> None:
    script = [Send(head(200, [*JSON, CHUNKED]) + chunk(b"[1,")), Wait(0.05)]
    async with behind([*script, Send(b"zz\r\n2]\r\n0\r\n\r\n"), Stall()]) as (upstream, gw):
        answer = await gw.ask("/chat", chat)
        assert (answer.body, answer.whole) == (b"[1,", False)
        await upstream.wait_closed()


@pytest.mark.parametrize("size", [600_000, 1_048_577, 5_000_000])
@pytest.mark.parametrize("chunked", [False, True])
async def test_the_rest_of_a_cut_error_does_not_hinder_the_next_request(
    behind: Behind, chat: dict[str, Any], size: int, chunked: bool
) -> None:
    script = in_turn(raw_reply(b"x" * size, status=500, chunked=chunked), OK)
    async with behind(script, max_error_bytes=2048, first_byte_timeout_s=5) as (_, gw):
        assert len((await gw.ask("/chat", chat)).body) == 2048
        for _ in range(3):
            assert (await gw.ask("/chat", chat)).body == BODY


async def test_answers_never_change_places(behind: Behind) -> None:
    dice = random.Random(3)

    def script(seen: Seen) -> list[Step]:
        number = seen.json()["n"]
        body = msgspec.json.encode({"n": number, "pad": "y" * dice.choice((0, 10, 70_000, 700_000))})
        steps = raw_reply(body, headers=JSON, chunked=dice.random() < 0.5)
        return [Wait(dice.random() / 100), *steps, *([Close()] if dice.random() < 0.1 else [])]

    async with behind(script, concurrency=8) as (_, gw):

        async def ask(number: int) -> None:
            pad = "x" * dice.choice((0, 10, 70_000, 400_000))
            answer = await gw.ask("/chat", {"n": number, "messages": [], "pad": pad})
            if answer.status == 502:  # it was sent in the moment in which the upstream closed the connection
                assert answer.error["code"] == "upstream_broken"
            else:
                assert (answer.json()["n"], answer.whole) == (number, True)

        await asyncio.gather(*(ask(number) for number in range(120)))


async def test_an_upstream_waits_for_a_client_that_does_not_read(
    behind: Behind, chat: dict[str, Any]
) -> None:
    piece = b"z" * 2**20
    script = [Send(head(200, [("content-length", str(64 * len(piece)))])), *[Send(piece)] * 64]
    async with behind(script) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat", msgspec.json.encode(chat))
        await wire.head()
        await asyncio.sleep(0.4)
        assert upstream.seen[0].finished_at is None, "the gateway has taken 64 MB that nobody reads"
        received = 0
        while not wire.answer.whole:
            await wire.until(b"z")
            received += len(wire.answer.body)
            wire.answer.body = b""
            if not await wire._step():
                break
        received += len(wire.answer.body)
        assert (received, wire.answer.whole) == (64 * len(piece), True)


async def test_a_connection_that_speaks_unasked_is_dropped(behind: Behind, chat: dict[str, Any]) -> None:
    gate = asyncio.Event()
    chatty = [*OK, WaitFor(gate), Send(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")]
    async with behind(in_turn(chatty, OK)) as (upstream, gw):
        assert (await gw.ask("/chat", chat)).status == 200
        gate.set()
        await upstream.wait_closed()
        assert (await gw.ask("/chat", chat)).status == 200
        assert upstream.connections_total == 2


async def test_connections_are_closed_with_the_gateway(running_gateway: Run, chat: dict[str, Any]) -> None:
    async with ScriptedUpstream() as upstream:
        async with running_gateway(upstream.url) as gw:
            await asyncio.gather(*(gw.ask("/chat", chat) for _ in range(4)))
            assert upstream.open_connections >= 1
        await upstream.wait_closed()


async def test_trailers_never_become_headers(behind: Behind, chat: dict[str, Any]) -> None:
    reply = [Send(head(200, [CHUNKED]) + chunk(b"{}") + b"0\r\nset-cookie: a=b\r\n\r\n")]
    async with behind(reply) as (_, gw):
        answer = await gw.ask("/chat", chat)
        assert (answer.status, answer.whole, answer.header("set-cookie")) == (200, True, None)


@pytest.mark.parametrize("more", [ENDLESS, b"x" * 4000, b"2;" + b"x" * 4000])
async def test_endless_trailers_are_cut(behind: Behind, chat: dict[str, Any], more: bytes) -> None:
    begin = b"" if more.startswith(b"2;") else b"0\r\nx-a: "
    script: list[Step] = [
        Send(head(200, [CHUNKED]) + chunk(b"{}")),
        Wait(0.05),
        Send(begin),
        *[Send(more)] * 500,
        Stall(),
    ]
    async with behind(in_turn(script, OK), concurrency=1) as (upstream, gw):
        assert not (await gw.ask("/chat", chat)).whole
        await upstream.wait_closed()
        assert (await gw.ask("/chat", chat)).status == 200


@pytest.mark.parametrize("status", [204, 304])
async def test_a_length_without_a_body_is_no_mistake(
    behind: Behind, chat: dict[str, Any], status: int
) -> None:
    async with behind([Send(head(status, [("content-length", "9"), ("etag", "a")]))]) as (_, gw):
        async with gw.wire() as wire:
            for _ in range(2):
                await wire.request("/v1/files", method="GET", headers=[("x-request-id", f"n{_}")])
                answer = await wire.rest()
                assert (answer.status, answer.whole, answer.header("etag")) == (status, True, "a")
        assert "code" not in await gw.line("n1")


async def test_a_status_that_is_none_is_told(behind: Behind, chat: dict[str, Any]) -> None:
    async with behind([Send(b"HTTP/1.1 099 A\r\ncontent-length: 2\r\n\r\n{}"), Stall()]) as (_, gw):
        answer = await gw.ask("/chat", chat)
        assert (answer.status, answer.error["code"]) == (502, "upstream_broken")


async def test_a_long_body_in_one_piece_with_its_head_is_no_endless_head(
    behind: Behind, chat: dict[str, Any]
) -> None:
    hints = head(103, [("link", "x" * 60_000)]) * 4
    script = [Send(hints[:-10]), Wait(0.05), Send(hints[-10:]), *raw_reply(b"x" * 600_000)]
    script = [*script[:2], Send(b"".join(step.octets for step in script[2:] if isinstance(step, Send)))]
    async with behind(script) as (_, gw):
        answer = await gw.ask("/chat", chat)
        assert (answer.status, len(answer.body)) == (200, 600_000)
