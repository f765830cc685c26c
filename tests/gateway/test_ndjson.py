"""NDJSON batches: items leave while the body is still coming, under a budget that pushes back."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from dabom.testing import WaitFor, chat_answer, chunk, json_reply

if TYPE_CHECKING:
    from tests.gateway.conftest import Answer, Behind, RunningGateway, Wire

_KIND = ("content-type", "application/x-ndjson")
_HEADERS = [_KIND, ("transfer-encoding", "chunked")]


def _line(ident: Any, size: int = 0, **more: Any) -> bytes:
    body = {"model": "qwen", "messages": [], **more, **({"x": "A" * size} if size else {})}
    return json.dumps({"id": ident, "body": body}).encode() + b"\n"


def _lines(answer: Answer) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.body.splitlines()]


def _statuses(answer: Answer) -> dict[Any, int]:
    lines = _lines(answer)
    found = {line["id"]: line["status"] for line in lines}
    assert len(found) == len(lines)
    return found


async def _begin(wire: Wire, *lines: bytes) -> None:
    await wire.request("/chat/batch", b"".join(map(chunk, lines)), headers=_HEADERS)


async def test_items_are_answered_while_the_body_is_still_coming(behind: Behind) -> None:
    async with behind() as (upstream, gw), gw.wire() as wire:
        await _begin(wire, _line("a"), _line("b")[:20])
        head = await wire.head()
        assert (head.status, head.header("content-type")) == (200, "application/x-ndjson")
        assert head.header("x-batch-total") is None
        await wire.until(b'"id":"a"')
        assert len(upstream.seen) == 1
        await wire.send(chunk(_line("b")[20:]))
        await wire.until(b'"id":"b"')
        await wire.send(chunk(b""))
        answer = await wire.rest()
        assert answer.whole
        assert [line["body"] for line in _lines(answer)] == [chat_answer(), chat_answer()]


async def test_a_client_may_wait_for_each_answer_before_it_sends_the_next(behind: Behind) -> None:
    async with behind(upload_idle_timeout_s=5) as (upstream, gw), gw.wire() as wire:
        await _begin(wire)
        for number in range(10):
            await wire.send(chunk(_line(f"n{number}")))
            await wire.until(b'"id":"n%d"' % number)
        await wire.send(chunk(b""))
        assert len(_lines(await wire.rest())) == 10
        assert [seen.header("x-request-id") or "" for seen in upstream.seen][9].endswith("-10")


async def test_there_is_no_limit_of_items(behind: Behind) -> None:
    async with behind(max_batch_items=3) as (_, gw):
        body = b"".join(_line(n) for n in range(300))
        answer = await gw.ask("/chat/batch", body, headers=[_KIND])
        assert _statuses(answer) == dict.fromkeys(range(300), 200)


@pytest.mark.parametrize("cut", [1, 7, 1000])
async def test_bodies_are_the_very_bytes_of_their_lines(behind: Behind, cut: int) -> None:
    bodies = [
        b'{ "model" : "qwen" ,\t"temperature":1e5 }',
        b'{"a":1,"a":2,"id":"b"}',
        b"{}",
        b"{}",
        '{"x":"한\\u0041😀\u2028"}'.encode(),
        b'{"data":"' + b"QUJD" * 500 + b'"}',
    ]
    text = b"".join(b'{"id":%d, "body": %b }\n' % (n, body) for n, body in enumerate(bodies))
    pieces = [text[i : i + cut] for i in range(0, len(text), cut)]
    async with behind() as (upstream, gw), gw.wire() as wire:
        await _begin(wire, *pieces, b"")
        assert len(_lines(await wire.rest())) == len(bodies)
        numbered = {
            (seen.header("x-request-id") or "").rsplit("-", 1)[1]: seen.sha256 for seen in upstream.seen
        }
        assert numbered == {str(n): hashlib.sha256(b).hexdigest() for n, b in enumerate(bodies, 1)}


@pytest.mark.parametrize(
    "text",
    [
        _line("a") + _line("b").rstrip(),
        _line("a") + _line("b"),
        (_line("a") + _line("b")).replace(b"\n", b"\r\n"),
        b"\n\n" + _line("a") + b"\r\n \t\n" + _line("b") + b"\n  \n",
        b"  " + _line("a") + b"\t" + _line("b").rstrip() + b"   ",
    ],
    ids=["no-last-newline", "plain", "crlf", "blank-lines", "spaces"],
)
async def test_lines_may_end_in_several_ways(behind: Behind, text: bytes) -> None:
    async with behind() as (upstream, gw):
        assert _statuses(await gw.ask("/chat/batch", text, headers=[_KIND])) == {"a": 200, "b": 200}
        assert {len(seen.body) for seen in upstream.seen} == {len(b'{"model": "qwen", "messages": []}')}


async def test_an_empty_body_has_no_lines(behind: Behind) -> None:
    async with behind() as (upstream, gw):
        for body in (b"", b"\n\n"):
            answer = await gw.ask("/chat/batch", body, headers=[_KIND])
            assert (answer.status, answer.body, answer.whole) == (200, b"", True)
        assert not upstream.seen


async def test_a_bad_line_gets_a_400_line_and_the_others_go_on(behind: Behind) -> None:
    bad = [
        b"hello",
        b"[]",
        b"{",
        b'{"body":{}}',
        b'{"id":null,"body":{}}',
        b'{"id":"\xff","body":{}}',
        b'{"id":1.5,"body":{}}',
        b"{}{}",
    ]
    known = [b'{"id":"no-body"}', b'{"id":"text","body":"x"}', b'{"id":"s","body":{"stream":true}}']
    body = b"\n".join([_line("a").rstrip(), *bad, *known, b'{"id":"a","body":{}}', _line("z")])
    async with behind() as (upstream, gw):
        answer = await gw.ask("/chat/batch", body, headers=[_KIND])
        assert answer.status == 200
        assert answer.whole
        lines = _lines(answer)
        assert [line["status"] for line in lines].count(400) == len(bad) + len(known) + 1
        by_id = {(line["id"], line["status"]) for line in lines}
        assert {("a", 200), ("z", 200), ("no-body", 400), ("text", 400), ("s", 400), (None, 400)} <= by_id
        assert all(isinstance(line["error"], str) and line["code"] for line in lines if line["status"] == 400)
        assert len(upstream.seen) == 2


@pytest.mark.parametrize("last", [True, False], ids=["last", "not-last"])
@pytest.mark.parametrize("piece", [500, 100_000])
async def test_a_line_over_the_limit_is_told_and_ends_the_batch(
    behind: Behind, piece: int, last: bool
) -> None:
    text = _line("a") + _line("b") + _line("large", 50_000) + (b"" if last else _line("c"))
    async with behind(max_body_bytes=10_000) as (upstream, gw), gw.wire() as wire:
        await _begin(wire, *(text[i : i + piece] for i in range(0, len(text), piece)), b"")
        answer = await wire.rest()
        assert answer.whole
        lines = {(line["id"], line["status"], line.get("code")) for line in _lines(answer)}
        assert lines >= {("a", 200, None), ("b", 200, None)}
        assert [status for _, status, code in lines if code == "body_too_large"] == [413]
        assert len(upstream.seen) == 2


async def test_a_line_without_an_end_is_told_before_it_has_come(behind: Behind) -> None:
    async with behind(max_body_bytes=10_000) as (upstream, gw), gw.wire() as wire:
        await _begin(wire, _line("a"), _line("large", 50_000)[:40_000])
        answer = await wire.rest()
        assert answer.whole
        assert {line["status"] for line in _lines(answer)} == {200, 413}
        assert len(upstream.seen) == 1


async def _stalled_at(gw: RunningGateway, sent: list[int]) -> int:
    """Wait until the client can send no more; how much it has sent."""
    before = -1
    async with asyncio.timeout(10):
        while sent[0] != before or before == 0:
            before = sent[0]
            await asyncio.sleep(0.3)
    return before


async def _pour(wire: Wire, count: int, size: int, sent: list[int]) -> None:
    for number in range(count):
        line = chunk(_line(number, size))
        await wire.send(line)
        sent[0] += len(line)
    await wire.send(chunk(b""))


async def test_the_budget_pushes_back_on_the_socket(behind: Behind) -> None:
    gate, sent = asyncio.Event(), [0]
    size, count = 100_000, 300
    async with (
        behind([WaitFor(gate), *json_reply({"ok": 1})], max_ndjson_bytes_in_flight=1_000_000) as (
            upstream,
            gw,
        ),
        gw.wire() as wire,
    ):
        await _begin(wire)
        pouring = asyncio.create_task(_pour(wire, count, size, sent))
        await upstream.wait_seen(4)
        stalled = await _stalled_at(gw, sent)
        # what the two ends of the socket and the intake hold comes on top of the budget
        assert stalled < 20_000_000 < size * count
        assert not pouring.done()
        gate.set()
        answer = await wire.rest(within_s=30)
        await pouring
        assert _statuses(answer) == dict.fromkeys(range(count), 200)


async def test_the_gateway_holds_no_more_than_the_budget(behind: Behind) -> None:
    gate, sent = asyncio.Event(), [0]
    async with (
        behind(
            [WaitFor(gate), *json_reply({"ok": 1})],
            max_ndjson_bytes_in_flight=200_000,
            concurrency=100,
            upstream={"keep_bodies": False},
        ) as (upstream, gw),
        gw.wire() as wire,
    ):
        await _begin(wire)
        pouring = asyncio.create_task(_pour(wire, 400, 50_000, sent))
        await upstream.wait_seen(3, complete=True)
        await _stalled_at(gw, sent)
        assert len(upstream.seen) == 3  # a fourth would be beyond the budget
        gate.set()
        assert len(_lines(await wire.rest(within_s=30))) == 400
        await pouring


async def test_an_item_larger_than_the_budget_goes_alone(behind: Behind) -> None:
    async with behind(max_ndjson_bytes_in_flight=10_000) as (upstream, gw):
        body = b"".join(_line(n, 50_000) for n in range(5))
        assert len(_lines(await gw.ask("/chat/batch", body, headers=[_KIND]))) == 5
        assert len(upstream.seen) == 5


async def test_a_client_that_reads_only_after_uploading_does_not_lock_itself_out(behind: Behind) -> None:
    """The answers are more than the sockets hold, and the client takes none until all is sent."""
    reply = json_reply({"text": "A" * 200_000})
    count = 150
    async with behind(reply, max_ndjson_bytes_in_flight=300_000, idle_timeout_s=30) as (upstream, gw):
        loop = asyncio.get_running_loop()
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
            sock.setblocking(False)
            await loop.sock_connect(sock, ("127.0.0.1", gw.port))
            head = "POST /chat/batch HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-ndjson\r\n"
            await loop.sock_sendall(sock, (head + "transfer-encoding: chunked\r\n\r\n").encode())
            async with asyncio.timeout(30):
                for number in range(count):
                    await loop.sock_sendall(sock, chunk(_line(number, 100_000)))
                await loop.sock_sendall(sock, chunk(b""))
                await upstream.wait_seen(count, complete=True, within_s=20)
                text = bytearray()
                while not text.endswith(b"\r\n0\r\n\r\n"):
                    text += await loop.sock_recv(sock, 2**20)
        assert text.count(b'"status":200') == count


async def test_a_stalled_upload_is_cut_but_what_was_asked_is_answered(behind: Behind) -> None:
    async with behind(upload_idle_timeout_s=0.3) as (upstream, gw), gw.wire() as wire:
        await _begin(wire, _line("a"), _line("b")[:10])
        answer = await wire.rest()
        assert [(line["id"], line["status"]) for line in _lines(answer)] == [("a", 200)]
        assert await gw.line(answer.header("x-request-id") or "")
        line = gw.log.lines[-1]
        assert line["code"] == "upload_timeout"
        assert len(upstream.seen) == 1


async def test_a_client_that_waits_for_a_slow_item_is_not_stalled(behind: Behind) -> None:
    gate = asyncio.Event()
    script = [WaitFor(gate), *json_reply({"ok": 1})]
    async with behind(script, upload_idle_timeout_s=0.2) as (upstream, gw), gw.wire() as wire:
        await _begin(wire, _line("a"))
        await upstream.wait_seen()
        await asyncio.sleep(0.7)
        gate.set()
        await wire.until(b'"id":"a"')
        await wire.send(chunk(_line("b")))
        await wire.until(b'"id":"b"')
        await wire.send(chunk(b""))
        assert _statuses(await wire.rest()) == {"a": 200, "b": 200}


async def test_ids_are_numbered_by_line(behind: Behind) -> None:
    async with behind() as (upstream, gw):
        headers = [_KIND, ("x-request-id", "mine")]
        body = _line("a") + b"bad\n" + _line("b")
        await gw.ask("/chat/batch", body, headers=headers)
        assert {seen.header("x-request-id") for seen in upstream.seen} == {"mine-1", "mine-3"}


async def test_a_failed_line_has_our_status_and_code(behind: Behind) -> None:
    async with behind([], first_byte_timeout_s=0.2, concurrency=1, acquire_timeout_s=0.1) as (_, gw):
        await gw.permits.acquire(1)
        try:
            (line,) = _lines(await gw.ask("/chat/batch", _line("a"), headers=[_KIND]))
        finally:
            gw.permits.release()
        assert (line["status"], line["code"]) == (503, "queue_timeout")


async def test_the_log_counts_items_and_bytes(behind: Behind) -> None:
    body = b"".join(_line(n) for n in range(5))
    async with behind() as (_, gw):
        answer = await gw.ask("/chat/batch", body, headers=[_KIND, ("x-request-id", "mine")])
        line = await gw.line("mine")
        assert (line["items"], line["bytes_in"], line["bytes_out"]) == (5, len(body), len(answer.body))
        assert (await gw.line("mine-5"))["path"] == "/chat/batch item"


async def test_many_lines_in_one_piece_leave_others_their_turn(behind: Behind) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with behind() as (_, gw):
        counting = asyncio.create_task(count())
        answer = await gw.ask("/chat/batch", b"1\n" * 20_000, headers=[_KIND])
        counting.cancel()
        assert len(_lines(answer)) == 20_000
        assert turns > 20_000 / 100
