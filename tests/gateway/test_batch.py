"""JSON batches: lines in completion order, one answer per item, bodies as they came."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from dabom.testing import (
    Close,
    Send,
    Stall,
    Wait,
    WaitFor,
    chat_answer,
    error_reply,
    json_reply,
    raw_reply,
    refusing_upstream,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.gateway.conftest import Answer, Behind, Run

    from dabom.testing.seen import Seen
    from dabom.testing.steps import Step

_JSON = [("content-type", "application/json")]


def _item(ident: Any, **more: Any) -> dict[str, Any]:
    return {"id": ident, "body": {"model": "qwen", "messages": [], **more}}


def _batch(*items: Any) -> dict[str, Any]:
    return {"items": list(items)}


def _lines(answer: Answer) -> list[dict[str, Any]]:
    assert answer.body.endswith(b"\n")
    return [json.loads(line) for line in answer.body.splitlines()]


def _by_id(answer: Answer) -> dict[Any, dict[str, Any]]:
    lines = _lines(answer)
    found = {line["id"]: line for line in lines}
    assert len(found) == len(lines)
    return found


def _named(scripts: dict[str, Sequence[Step]]) -> Callable[[Seen], Sequence[Step]]:
    """A script that goes by the field `do` of the body."""
    return lambda seen: scripts[seen.json()["do"]]


async def test_lines_come_in_the_order_in_which_items_finish(behind: Behind) -> None:
    gates = {name: asyncio.Event() for name in "abc"}
    script = _named({name: [WaitFor(gate), *json_reply(chat_answer(name))] for name, gate in gates.items()})
    batch = json.dumps(_batch(*(_item(name, do=name) for name in "abc"))).encode()
    async with behind(script) as (_, gw), gw.wire() as wire:
        await wire.request("/chat/batch", batch, headers=_JSON)
        head = await wire.head()
        assert head.status == 200
        assert head.header("content-type") == "application/x-ndjson"
        assert head.header("x-batch-total") == "3"
        for count, name in enumerate("cab", 1):
            gates[name].set()
            await wire.until(b'{"id":"%b"' % name.encode())
            assert wire.answer.body.count(b"\n") == count
        answer = await wire.rest()
        assert answer.whole
        assert [line["id"] for line in _lines(answer)] == ["c", "a", "b"]
        assert [line["body"] for line in _lines(answer)] == [chat_answer(n) for n in "cab"]
        assert {line["status"] for line in _lines(answer)} == {200}


async def test_a_line_has_the_fields_of_the_seed_in_their_order(behind: Behind) -> None:
    async with behind() as (_, gw):
        answer = await gw.ask("/chat/batch", _batch(_item(7)))
        assert re.fullmatch(rb'\{"id":7,"status":200,"elapsed_ms":\d+,"body":\{.*\}\}\n', answer.body)


async def test_elapsed_ms_leaves_the_queue_out(behind: Behind) -> None:
    script = [Wait(0.2), *json_reply({"ok": 1})]
    async with behind(script, concurrency=1) as (_, gw):
        lines = _lines(await gw.ask("/chat/batch", _batch(*(_item(n) for n in range(4)))))
        assert all(line["elapsed_ms"] >= 195 for line in lines)
        first, last = lines[0]["elapsed_ms"], lines[-1]["elapsed_ms"]
        assert last < first + 400  # with its queue it would be 600 more


async def test_no_item_times_out_behind_its_siblings(behind: Behind) -> None:
    script = [Wait(0.15), *json_reply({"ok": 1})]
    async with behind(script, concurrency=1, acquire_timeout_s=1) as (_, gw):
        lines = _lines(await gw.ask("/chat/batch", _batch(*(_item(n) for n in range(10)))))
        assert [line["status"] for line in lines] == [200] * 10


async def test_an_item_that_gets_no_permit_fails_alone(behind: Behind) -> None:
    batch = json.dumps(_batch(_item("a"), _item("b"))).encode()
    async with behind(concurrency=1, acquire_timeout_s=0.4) as (upstream, gw), gw.wire() as wire:
        await gw.permits.acquire(1)
        await wire.request("/chat/batch", batch, headers=_JSON)
        await wire.until(b'{"id":"a"')
        gw.permits.release()
        found = _by_id(await wire.rest())
        assert found["a"]["status"] == 503
        assert found["a"]["code"] == "queue_timeout"
        assert isinstance(found["a"]["error"], str)
        assert found["b"]["status"] == 200
        assert len(upstream.seen) == 1


async def test_too_many_items_are_refused_and_nothing_is_dispatched(behind: Behind) -> None:
    async with behind(max_batch_items=3) as (upstream, gw):
        answer = await gw.ask("/chat/batch", _batch(*(_item(n) for n in range(4))))
        assert (answer.status, answer.error["code"]) == (413, "too_many_items")
        assert answer.header("content-type") == "application/json"
        assert answer.header("x-batch-total") is None
        assert (await gw.ask("/chat/batch", _batch(*(_item(n) for n in range(3))))).status == 200
        assert len(upstream.seen) == 3


@pytest.mark.parametrize(
    "batch",
    [
        {},
        {"items": None},
        {"items": {}},
        {"items": "a"},
        {"items": []},
        _batch(_item("a"), {"body": {}}),
        _batch(_item("a"), _item("a")),
        _batch(_item("\u00e9"), _item("é")),
        _batch(_item(1), _item("b"), _item(1)),
        _batch(_item(None)),
        _batch(_item(1.5)),
        _batch(_item(["a"])),
        _batch(_item(True)),
        _batch(_item("x" * 2000)),
        _batch(_item("a"), 5),
        [],
    ],
    ids=lambda batch: str(batch)[:60],
)
async def test_a_batch_that_is_wrong_as_a_whole_is_one_400(behind: Behind, batch: Any) -> None:
    async with behind() as (upstream, gw):
        answer = await gw.ask("/chat/batch", batch)
        assert answer.status == 400
        assert answer.header("content-type") == "application/json"
        assert set(answer.error) == {"message", "type", "param", "code"}
        assert not upstream.seen


async def test_ids_that_are_spelled_differently_are_the_same(behind: Behind) -> None:
    async with behind() as (upstream, gw):
        items = b'{"items":[{"id":"\\u0061","body":{}},{"id":"a","body":{}}]}'
        assert (await gw.ask("/chat/batch", items)).status == 400
        assert not upstream.seen


async def test_malformed_json_is_one_400(behind: Behind) -> None:
    async with behind() as (upstream, gw):
        good = json.dumps(_batch(_item("a"), _item("b"))).encode()
        for bad in (
            good[:-1],
            good + b"x",
            good.replace(b'"b"', b"NaN"),
            b"",
            good.replace(b"qwen", b"\xff"),
        ):
            answer = await gw.ask("/chat/batch", bad)
            assert (answer.status, answer.error["code"]) == (400, "invalid_json")
        assert not upstream.seen


async def test_a_wrong_item_gets_a_400_line_and_the_others_go_on(behind: Behind) -> None:
    batch = _batch(
        _item("good"),
        {"id": "text", "body": "hello"},
        {"id": "list", "body": []},
        {"id": "none"},
        {"id": "null", "body": None},
        _item("stream", stream=True),
        _item("no-stream", stream=False),
    )
    async with behind() as (upstream, gw):
        answer = await gw.ask("/chat/batch", batch)
        assert answer.header("x-batch-total") == "7"
        found = _by_id(answer)
        assert {ident: line["status"] for ident, line in found.items()} == {
            "good": 200,
            "text": 400,
            "list": 400,
            "none": 400,
            "null": 400,
            "stream": 400,
            "no-stream": 200,
        }
        for line in found.values():
            assert set(line) in (
                {"id", "status", "elapsed_ms", "body"},
                {"id", "status", "elapsed_ms", "error", "code"},
            )
        assert len(upstream.seen) == 2


@pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 503])
async def test_an_upstreams_error_is_under_error(behind: Behind, status: int) -> None:
    script = _named({"fail": error_reply(status, "no such thing"), "ok": json_reply({"ok": 1})})
    async with behind(script) as (_, gw):
        found = _by_id(await gw.ask("/chat/batch", _batch(_item("a", do="fail"), _item("b", do="ok"))))
        assert found["a"]["status"] == status
        assert found["a"]["error"]["error"]["message"] == "no such thing"
        assert "body" not in found["a"]
        assert found["b"]["body"] == {"ok": 1}


@pytest.mark.parametrize(
    ("script", "clocks", "code"),
    [
        ([Close()], {}, "upstream_broken"),
        ([Send(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"), Close()], {}, "upstream_broken"),
        (raw_reply(b"<html>"), {}, "upstream_broken"),
        (raw_reply(b'{"a":"\xff"}'), {}, "upstream_broken"),
        (raw_reply(b""), {}, "upstream_broken"),
        ([Stall()], {"first_byte_timeout_s": 0.2}, "first_byte_timeout"),
        ([Stall()], {"total_timeout_s": 0.2}, None),
        (
            [Send(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"), Stall()],
            {"idle_timeout_s": 0.2},
            "idle_timeout",
        ),
    ],
    ids=["closed", "cut", "html", "utf-8", "empty", "first-byte", "total", "idle"],
)
async def test_our_own_faults_are_a_500_with_a_code(
    behind: Behind, script: Sequence[Step], clocks: dict[str, float], code: str | None
) -> None:
    async with behind(_named({"fail": script, "ok": json_reply({"ok": 1})}), **clocks) as (_, gw):
        answer = await gw.ask("/chat/batch", _batch(_item("a", do="fail"), _item("b", do="ok")))
        assert answer.whole
        found = _by_id(answer)
        assert found["a"]["status"] == 500
        assert found["a"]["code"] == (code or found["a"]["code"])
        assert found["a"]["code"] in (
            "upstream_broken",
            "first_byte_timeout",
            "total_timeout",
            "idle_timeout",
        )
        assert isinstance(found["a"]["error"], str)
        assert found["b"]["status"] == 200


async def test_an_upstream_that_cannot_be_reached_is_told_per_item(running_gateway: Run) -> None:
    with refusing_upstream() as url:
        async with running_gateway(url) as gw:
            found = _by_id(await gw.ask("/chat/batch", _batch(_item("a"), _item("b"))))
            assert {(line["status"], line["code"]) for line in found.values()} == {
                (500, "upstream_unreachable")
            }


async def test_each_item_has_the_request_id_with_its_number(behind: Behind) -> None:
    async with behind() as (upstream, gw):
        items = [_item("x"), {"id": "bad", "body": 1}, _item("y")]
        answer = await gw.ask("/chat/batch", _batch(*items), headers=[("x-request-id", "mine")])
        assert answer.header("x-request-id") == "mine"
        assert {seen.header("x-request-id") for seen in upstream.seen} == {"mine-1", "mine-3"}
        assert {seen.path for seen in upstream.seen} == {"/v1/chat/completions"}
        assert {seen.header("content-type") for seen in upstream.seen} == {"application/json"}


async def test_bodies_are_the_very_bytes_that_stood_in_the_batch(behind: Behind) -> None:
    bodies = [
        b'{ "model" : "qwen" ,\n\t"messages":[ ] , "temperature":1e5 }',
        b'{"model":"qwen","model":"qwen","n":12345678901234567890,"n":0.10}',
        b'{"x":"\\u0041\\/\\ud83d\\ude00","model":"qwen","id":"body"}',
        b"{}",
        b"{}",
        b'{"body":{"body":{}},"id":1}',
        b'{"data":"' + b"QUJD" * 300_000 + b'","x":"' + "한".encode() * 2000 + b'"}',
        b'{"data":"' + b"QUJD" * 300_000 + b'","x":"' + "한".encode() * 2000 + b'"}',
        b'{"lone":"\\ud800"}',
    ]
    items = [b'{"id": %d , "note":{"body":{}}, "body" :\n%b }' % (n, body) for n, body in enumerate(bodies)]
    batch = b'{"comment":"items","items" : [' + b" ,\n".join(items) + b"]\r\n}"
    for chunked in (False, True):
        async with behind() as (upstream, gw):
            if chunked:
                headers = [("content-type", "application/json"), ("transfer-encoding", "chunked")]
                async with gw.wire() as wire:
                    cut = [batch[i : i + 70_001] for i in range(0, len(batch), 70_001)]
                    text = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*cut, b""])
                    await wire.request("/chat/batch", text, headers=headers)
                    answer = await wire.rest()
            else:
                answer = await gw.ask("/chat/batch", batch)
            assert {line["status"] for line in _lines(answer)} == {200}
            found = {
                seen.header(
                    "x-request-id",
                ): seen
                for seen in upstream.seen
            }
            numbered = {str(ident).rsplit("-", 1)[1]: seen.sha256 for ident, seen in found.items()}
            assert numbered == {str(n): hashlib.sha256(b).hexdigest() for n, b in enumerate(bodies, 1)}


@pytest.mark.parametrize("ident", ['"a\\u00e9\\n"', "0", "-5", "12345678901234567890", '"😀"', '""'])
async def test_an_id_comes_back_as_it_was_written(behind: Behind, ident: str) -> None:
    async with behind() as (_, gw):
        answer = await gw.ask("/chat/batch", f'{{"items":[{{"id":{ident},"body":{{}}}}]}}'.encode())
        assert answer.status == 200
        assert answer.body.startswith(f'{{"id":{ident},'.encode())


async def test_an_answer_over_several_lines_stays_one_line(behind: Behind) -> None:
    pretty = (
        json.dumps(chat_answer('a "b" \\ \n 한'), indent=2, ensure_ascii=False).replace("\n", "\r\n").encode()
    )
    async with behind(raw_reply(pretty)) as (_, gw):
        answer = await gw.ask("/chat/batch", _batch(_item("a")))
        assert answer.body.count(b"\n") == 1
        assert _lines(answer)[0]["body"] == chat_answer('a "b" \\ \n 한')


async def test_an_error_that_is_no_json_is_told_as_text(behind: Behind) -> None:
    async with behind(raw_reply(b"<h1>bad\r\n\xff</h1>", status=502)) as (_, gw):
        (line,) = _lines(await gw.ask("/chat/batch", _batch(_item("a"))))
        assert line["status"] == 502
        assert line["error"].startswith("<h1>bad\r\n")


async def test_an_error_body_is_cut_at_its_limit(behind: Behind) -> None:
    async with behind(raw_reply(b"x" * 5000, status=500), max_error_bytes=1024) as (_, gw):
        (line,) = _lines(await gw.ask("/chat/batch", _batch(_item("a"))))
        assert len(line["error"]) == 1024


async def test_an_answer_over_the_limit_fails_its_item_alone(behind: Behind) -> None:
    script = _named({"much": raw_reply(b'"' + b"x" * 5000 + b'"'), "ok": json_reply({"ok": 1})})
    async with behind(script, max_answer_bytes=1024) as (_, gw):
        found = _by_id(await gw.ask("/chat/batch", _batch(_item("a", do="much"), _item("b", do="ok"))))
        assert (found["a"]["status"], found["a"]["code"]) == (500, "upstream_broken")
        assert found["b"]["status"] == 200


async def test_a_stream_as_the_answer_of_an_item_is_not_json(behind: Behind) -> None:
    async with behind(raw_reply(b'data: {"a":1}\n\ndata: [DONE]\n\n')) as (_, gw):
        (line,) = _lines(await gw.ask("/chat/batch", _batch(_item("a"))))
        assert (line["status"], line["code"]) == (500, "upstream_broken")


async def test_an_item_over_the_limit_makes_the_batch_a_413(behind: Behind) -> None:
    async with behind(max_body_bytes=20_000) as (upstream, gw):
        for filler in ("x" * 30_000, ["y" * 300] * 100):
            answer = await gw.ask("/chat/batch", _batch(_item("a"), _item("b", x=filler)))
            assert (answer.status, answer.error["code"]) == (413, "body_too_large")
        assert not upstream.seen
        many = _batch(*(_item(n, x="x" * 15_000) for n in range(5)))
        assert len(_lines(await gw.ask("/chat/batch", many))) == 5


async def test_an_idle_upload_of_a_batch_is_cut(behind: Behind) -> None:
    async with behind(upload_idle_timeout_s=0.2) as (upstream, gw), gw.wire() as wire:
        await wire.request("/chat/batch", b'{"items":[', headers=_JSON, length=5000)
        answer = await wire.rest()
        assert (answer.status, answer.error["code"]) == (408, "upload_timeout")
        assert not upstream.seen


async def test_get_is_not_allowed(behind: Behind) -> None:
    async with behind() as (_, gw):
        assert (await gw.ask("/chat/batch", method="GET")).status == 405
