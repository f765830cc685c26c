"""The audit of a gateway: what a record holds, and what happens when it cannot be written."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from dabom.errors import AuditUnavailable, StoreError
from dabom.gateway import Audit, AuditSettings, Metrics
from dabom.gateway.account import Record
from dabom.gateway.audit import entry
from dabom.store import open_audit, verify
from dabom.testing import (
    ScriptedUpstream,
    chat_answer,
    chat_events,
    error_reply,
    json_reply,
    sse_reply,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from tests.gateway.conftest import Behind, Run, RunningGateway

_PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def _records(database: Path) -> list[dict[str, Any]]:
    """Those of requests; the chain must be whole."""
    chain = open_audit(str(database), read_only=True)
    assert verify(chain).faults == ()
    records = [msgspec.json.decode(row.record) for row in chain.rows(1)]
    chain.close()
    return records


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "audit.db"


async def test_a_request_leaves_one_record(behind: Behind, database: Path) -> None:
    content = [{"type": "text", "text": "뭐가 보여?"}, {"type": "image_url", "image_url": {"url": _PICTURE}}]
    body = {"model": "qwen", "messages": [{"role": "user", "content": content}]}
    settings = {"database": str(database), "gateway": "gw1"}
    async with behind(json_reply({"ok": 1}), audit=settings) as (_, gw):
        answer = await gw.ask("/v1/chat/completions", body, headers=[("x-request-id", "r-1")])
        assert answer.status == 200
    (record,) = _records(database)
    assert record["kind"] == "request"
    assert record["seq"] == 1
    assert record["gateway"] == "gw1"
    assert record["request_id"] == "r-1"
    assert (record["method"], record["path"]) == ("POST", "/v1/chat/completions")
    assert (record["model"], record["status"], record["code"]) == ("qwen", 200, "")
    assert record["upstream"]
    assert record["bytes"] == {"in": len(msgspec.json.encode(body)), "out": len(answer.body)}
    (picture,) = record["media"]
    assert (picture["kind"], picture["mime"], picture["width"], picture["height"]) == (
        "image",
        "image/png",
        1,
        1,
    )
    assert len(picture["sha256_head"]) == 16
    assert record["ms"]["total"] >= record["ms"]["first_byte"] >= 0  # the clock has whole milliseconds
    assert record["time"].startswith(time.strftime("%Y-", time.gmtime()))


async def test_failures_and_items_are_written_and_pages_are_not(behind: Behind, database: Path) -> None:
    items = {"items": [{"id": n, "body": {"model": "m", "messages": []}} for n in range(2)]}
    async with behind(error_reply(400, "no"), audit={"database": str(database)}) as (_, gw):
        for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
            await gw.ask(path)
        await gw.ask("/chat", b"{")
        await gw.ask("/chat/batch", items, headers=[("x-request-id", "b")])
        async with gw.wire() as wire:
            await wire.send(b"no http\r\n\r\n")
            await wire.closed()
    found = [(one["path"], one["status"], one["code"], one["request_id"]) for one in _records(database)]
    assert found[0][:3] == ("/chat", 400, "invalid_json")
    assert sorted(one[3] for one in found[1:4]) == ["b", "b-1", "b-2"]
    assert next(one for one in found if one[3] == "b")[1] == 200
    assert {one[1] for one in found if one[3].startswith("b-")} == {400}
    assert [one[:2] for one in found[4:]] == [("", 400)]


async def test_the_audit_is_off_unless_it_is_asked_for(behind: Behind, tmp_path: Path) -> None:
    async with behind(json_reply({"ok": 1})) as (_, gw):
        assert (await gw.ask("/chat", {"model": "m", "messages": []})).status == 200
    assert not os.listdir(tmp_path)  # noqa: PTH208 - a list of names, no paths


@asynccontextmanager
async def _locked(database: Path) -> AsyncIterator[None]:
    """Meanwhile the table is not there: every write fails at once, as on a full disk."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("ALTER TABLE dabom_audit RENAME TO away")
    try:
        yield
    finally:
        connection.execute("ALTER TABLE away RENAME TO dabom_audit")
        connection.close()


def _count(gw: RunningGateway, outcome: str) -> float:
    return gw.gateway.metrics.audit.value(outcome)


async def test_refuse_lets_nothing_in_until_it_can_be_written_again(behind: Behind, database: Path) -> None:
    body, again = {"model": "m", "messages": []}, [("x-request-id", "again")]
    async with behind(json_reply({"ok": 1}), audit={"database": str(database)}) as (upstream, gw):
        async with _locked(database):
            assert (await gw.ask("/chat", body, headers=[("x-request-id", "first")])).status == 200
            await gw.until(lambda: _count(gw, "failed") > 0)
            seen = len(upstream.seen)
            refused = await gw.ask("/chat", body)
            assert (refused.status, refused.error["code"]) == (503, "audit_unavailable")
            assert refused.header("retry-after")
            assert (await gw.ask("/v1/models")).status == 503
            assert (await gw.ask("/readyz")).status == 503
            assert (await gw.ask("/healthz")).status == 200
            assert len(upstream.seen) == seen
        async with asyncio.timeout(10):
            while (await gw.ask("/chat", body, headers=again)).status != 200:  # noqa: ASYNC110 - as clients do
                await asyncio.sleep(0.05)
        await gw.until(lambda: not gw.gateway.metrics.audit_waiting.family().samples[0].value)
        page = (await gw.ask("/metrics")).body
        assert b'dabom_audit_records_total{outcome="written"}' in page
    records = _records(database)
    assert [one["request_id"] for one in records if one["kind"] == "request"] == ["first", "again"]
    gaps = [one for one in records if one["kind"] == "gap"]
    assert sum(one["refused"] for one in gaps) >= 2
    assert sum(one["lost"] for one in gaps) == 0


async def test_continue_serves_on_and_writes_down_what_was_lost(behind: Behind, database: Path) -> None:
    settings = {"database": str(database), "on_failure": "continue", "max_waiting": 3}
    body = {"model": "m", "messages": []}
    async with behind(json_reply({"ok": 1}), audit=settings) as (_, gw):
        async with _locked(database):
            for number in range(8):
                answer = await gw.ask("/chat", body, headers=[("x-request-id", f"r{number}")])
                assert answer.status == 200
            assert (await gw.ask("/readyz")).status == 200
            await gw.until(lambda: _count(gw, "failed") > 0)
        await gw.until(lambda: _count(gw, "written") == 4)
        assert _count(gw, "dropped") == 5
    records = _records(database)
    assert [one["request_id"] for one in records if one["kind"] == "request"] == ["r0", "r1", "r2"]
    gaps = [one for one in records if one["kind"] == "gap"]  # more than one when the writer wakes in between
    assert sum(gap["lost"] for gap in gaps) == 5
    assert all(gap["refused"] == 0 and gap["since"] <= gap["time"] for gap in gaps)
    chain = open_audit(str(database), read_only=True)
    assert verify(chain).lost == 5
    chain.close()


async def test_an_item_of_a_batch_is_refused_like_a_request(behind: Behind, database: Path) -> None:
    lines = [json.dumps({"id": n, "body": {"model": "m", "messages": []}}).encode() + b"\n" for n in range(2)]
    kind = [("content-type", "application/x-ndjson"), ("transfer-encoding", "chunked")]
    async with behind(json_reply({"ok": 1}), audit={"database": str(database)}) as (upstream, gw):
        async with _locked(database), gw.wire() as wire:
            await wire.request("/chat/batch", b"", headers=kind)
            await wire.send(b"%x\r\n%b\r\n" % (len(lines[0]), lines[0]))
            await wire.until(b'"ok"')
            await gw.until(lambda: _count(gw, "failed") > 0)
            await wire.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(lines[1]), lines[1]))
            answer = await wire.rest()
        assert b"audit_unavailable" in answer.body
        assert len(upstream.seen) == 1


class _Slow:
    """A chain that takes its time, or fails, as it is told."""

    def __init__(self) -> None:
        self.batches: list[Sequence[Mapping[str, Any]]] = []
        self.fails: Exception | None = None
        self.closed = False

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        if self.fails is not None:
            raise self.fails
        self.batches.append(list(records))

    def close(self) -> None:
        self.closed = True


def _start(chain: _Slow, **settings: Any) -> tuple[Audit, Metrics]:
    metrics = Metrics()
    audit = Audit(AuditSettings(**settings), metrics, "gw", lambda: chain)
    audit.start()
    return audit, metrics


def _wait(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def _record(number: int = 0, **more: Any) -> Record:
    return Record(f"r{number}", "/chat", time=time.time(), status=200, **more)


def test_closing_writes_what_waits() -> None:
    chain = _Slow()
    audit, metrics = _start(chain)
    for number in range(2500):
        audit.write(_record(number))
    audit.close()
    assert [one["request_id"] for batch in chain.batches for one in batch] == [f"r{n}" for n in range(2500)]
    assert len(chain.batches) <= 4, "many records share one transaction"
    assert (metrics.audit.value("written"), chain.closed) == (2500, True)


def test_closing_without_a_database_ends_and_tells(caplog: pytest.LogCaptureFixture) -> None:
    chain = _Slow()
    chain.fails = StoreError("the disk is full")
    audit, _ = _start(chain)
    audit.write(_record())
    _wait(lambda: not audit.writable)
    began = time.monotonic()
    audit.close()
    assert time.monotonic() - began < 2
    assert "the disk is full" in caplog.text
    assert "1 records were not written" in caplog.text


def test_a_full_queue_lets_nothing_new_in_and_loses_nothing_that_was() -> None:
    chain = _Slow()
    chain.fails = StoreError("no")
    audit, metrics = _start(chain, max_waiting=2)
    for number in range(4):  # two were at work when the queue became full
        audit.write(_record(number))
    with pytest.raises(AuditUnavailable):
        audit.admit()
    audit.write(_record(9, code="audit_unavailable"))
    chain.fails = None
    _wait(lambda: metrics.audit.value("written") == 5)
    audit.admit()
    audit.close()
    written = [one for batch in chain.batches for one in batch]
    assert [one["request_id"] for one in written if one["kind"] == "request"] == ["r0", "r1", "r2", "r3"]
    assert [one["refused"] for one in written if one["kind"] == "gap"] == [1]


def test_a_mistake_of_the_store_is_a_failure_like_any_other(caplog: pytest.LogCaptureFixture) -> None:
    chain = _Slow()
    chain.fails = RuntimeError("with words of a prompt")
    audit, metrics = _start(chain)
    audit.write(_record())
    _wait(lambda: not audit.writable)
    chain.fails = None
    _wait(lambda: metrics.audit.value("written") == 1)
    audit.close()
    assert "RuntimeError" in caplog.text
    assert "prompt" not in caplog.text


def test_a_record_that_cannot_be_read_keeps_no_other_waiting() -> None:
    chain = _Slow()
    audit, _ = _start(chain)
    audit.write(_record(1, media=(object(),)))
    audit.write(_record(2))
    audit.close()
    assert [(one["request_id"], one.get("flaw")) for one in chain.batches[0]] == [
        ("r1", "TypeError"),
        ("r2", None),
    ]


def test_text_without_bytes_is_written_all_the_same() -> None:
    fields = entry(Record("r", "/v1/\ud800한", model="\udfff", time=1.0), "gw")
    assert (fields["path"], fields["model"]) == ("/v1/?한", "?")
    msgspec.json.encode(fields)


def test_the_loop_pays_next_to_nothing() -> None:
    chain = _Slow()
    audit, _ = _start(chain, max_waiting=10**6)
    records = [_record(number) for number in range(20_000)]
    began = time.thread_time()
    for record in records:
        audit.admit()
        audit.write(record)
    spent_us = (time.thread_time() - began) / len(records) * 1e6
    audit.close()
    assert spent_us < 10, "measured 0.5 on the machine of the bench"


@pytest.mark.parametrize("stream", [False, True])
async def test_model_and_revision_of_the_upstream_are_told(
    running_gateway: Run, database: Path, *, stream: bool
) -> None:
    told = {"model": "Qwen/Qwen3-VL-8B", "system_fingerprint": "vllm-0.32.0-dfe8a47f"}
    quoted = 'it says "model": "evil", "system_fingerprint": "evil"'
    events = [{**one, **told} for one in chat_events(quoted, "b")]
    script = sse_reply(events) if stream else json_reply(chat_answer(quoted) | told)
    async with ScriptedUpstream(script, models=["Qwen/Qwen3-VL-8B"]) as upstream:
        given: dict[str, Any] = {
            "upstreams": [{"name": "vl", "url": upstream.url, "model": "Qwen/Qwen3-VL-8B"}],
            "models": {"sees": "vl"},
            "audit": {"database": str(database)},
        }
        async with running_gateway(**given) as gw:
            body = {"model": "sees", "messages": [], "stream": stream}
            assert (await gw.ask("/chat", body)).status == 200
            assert (await gw.ask("/chat/batch", {"items": [{"id": 1, "body": {"model": "sees"}}]})).whole
    whole = [one for one in _records(database) if one["model"]]
    assert [one["served"] for one in whole] == ["Qwen/Qwen3-VL-8B"] * 2
    assert [one["revision"] for one in whole] == ["vllm-0.32.0-dfe8a47f"] * 2


async def test_a_revision_of_the_settings_counts_more(running_gateway: Run, database: Path) -> None:
    answer = chat_answer() | {"system_fingerprint": "vllm-0.32.0-dfe8a47f"}
    async with ScriptedUpstream(json_reply(answer)) as upstream, ScriptedUpstream(error_reply(503)) as busy:
        upstreams = [
            {"name": "one", "url": busy.url, "model": "x", "revision": "r1"},
            {"name": "two", "url": upstream.url, "model": "y", "revision": "r2"},
        ]
        given: dict[str, Any] = {"upstreams": upstreams, "routes": {"all": {"steps": [["one"], ["two"]]}}}
        given |= {"models": {"m": "all"}, "audit": {"database": str(database)}}
        async with running_gateway(**given) as gw:
            assert (await gw.ask("/chat", {"model": "m", "messages": []})).status == 200
    (record,) = _records(database)
    assert (record["upstream"], record["served"], record["revision"]) == ("two", "y", "r2")
    assert record["hops"] == ["one;failed=http_503"]
    assert (record["tokens"]["prompt"], record["tokens"]["answer"]) == (3, 1)
