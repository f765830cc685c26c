"""A secret goes through every path; afterwards it is in no log, no metric, no error answer, no file."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from dabom.testing import (
    Close,
    Reset,
    Send,
    Stall,
    chat_events,
    chunk,
    error_reply,
    head,
    json_reply,
    raw_reply,
    refusing_upstream,
    sse_event,
    sse_reply,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.gateway.conftest import Answer, Behind, Run, RunningGateway

    from dabom.testing.seen import Seen
    from dabom.testing.steps import Step


def _png() -> bytes:
    file = io.BytesIO()
    Image.frombytes("RGB", (40, 40), random.Random(3).randbytes(4800)).save(file, "PNG")
    return file.getvalue()


_SECRET = "kanarienvogel"
_KEY = "sk-geheimnis"
_FILE = "vertraulich.pdf"
_PICTURE = base64.b64encode(_png()).decode()
_CLIP = base64.b64encode(random.Random(4).randbytes(300_000)).decode()  # of a kind that only upstreams know
# nothing of a picture or a clip, wherever it is cut, may be found again
_PARTS = [media[at : at + 24] for media in (_PICTURE, _CLIP) for at in range(0, 4000, 500)]
_NEEDLES = [needle.encode() for needle in (_SECRET, _KEY, _FILE, *_PARTS)]
_HEADERS = [
    ("authorization", f"Bearer {_KEY}"),
    ("x-api-key", _KEY),
    ("cookie", _SECRET),
    ("x-note", _SECRET),
]
_JSON = ("content-type", "application/json")
_NDJSON = ("content-type", "application/x-ndjson")


def _body(**more: Any) -> dict[str, Any]:
    content = [
        {"type": "text", "text": f"{_SECRET} 무엇이 보이나요?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_PICTURE}"}},
        {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{_CLIP}"}},
        {"type": "file", "file": {"filename": _FILE, "file_data": f"data:application/pdf;base64,{_PICTURE}"}},
    ]
    messages = [{"role": "system", "content": _SECRET}, {"role": "user", "content": content}]
    return {"model": "qwen", "messages": messages, "user": _SECRET, _SECRET: 1, **more}


def _encoded(**more: Any) -> bytes:
    return json.dumps(_body(**more)).encode()


def _check(where: str, text: bytes) -> None:
    for needle in _NEEDLES:
        assert needle not in text, f"{needle!r} is in {where}"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Temporary files go where they can be seen: there must be none."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield
    assert not list(folder.iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]
    # spooled files have no name; those that are open show in the table of descriptors
    links = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    assert not [link for link in links if link.startswith(str(folder))]


async def _ask_everything(gw: RunningGateway) -> list[Answer]:
    """Every path with the secret in it, whole and broken, and what was answered."""
    item = {"id": 1, "body": _body()}
    whole: list[tuple[str, bytes, tuple[str, str]]] = [
        ("/chat", _encoded(), _JSON),
        ("/chat", _encoded(stream=True), _JSON),
        ("/v1/chat/completions", _encoded(), _JSON),
        ("/v1/embeddings", _encoded(), _JSON),
        (
            "/v1/audio/transcriptions",
            _encoded(),
            ("content-type", f"multipart/form-data; boundary={_SECRET}"),
        ),
        ("/chat/batch", json.dumps({"items": [item, {"id": 2, "body": _body(stream=True)}]}).encode(), _JSON),
        (
            "/chat/batch",
            json.dumps(item).encode() + b"\n" + json.dumps({"id": 2, "body": _SECRET}).encode(),
            _NDJSON,
        ),
    ]
    url = {"type": "video_url", "video_url": {"url": f"https://example.com/{_SECRET}.mp4?key={_KEY}"}}
    outside = _body(messages=[{"role": "user", "content": [url]}])
    garbled = _body(messages=[{"role": "user", "content": [{"image_url": f"data:{_KEY};base64,{_SECRET}"}]}])
    broken: list[tuple[str, bytes, tuple[str, str]]] = [
        ("/chat", json.dumps(outside).encode(), _JSON),
        ("/chat", json.dumps(garbled).encode(), _JSON),
        ("/chat/batch", json.dumps({"items": [{"id": 1, "body": outside}]}).encode(), _JSON),
        ("/chat", _encoded()[:-1], _JSON),
        ("/chat", _encoded() + _SECRET.encode(), _JSON),
        ("/chat", _SECRET.encode(), _JSON),
        ("/chat", f'{{"a":{_SECRET}}}'.encode(), _JSON),
        ("/chat", f'{{"{_SECRET}":"{_SECRET}'.encode() + b"\n" * 1 + b'"}', _JSON),
        ("/chat", b'{"a":"' + _SECRET.encode() * 500 + b'\\x"}', _JSON),
        ("/chat", f'["{_SECRET}"]'.encode(), _JSON),
        ("/chat", _encoded(x="y" * 900_000), _JSON),
        ("/chat", _encoded(), ("content-type", "text/plain")),
        ("/chat/batch", json.dumps({"items": _SECRET}).encode(), _JSON),
        ("/chat/batch", json.dumps({"items": [item, item]}).encode(), _JSON),
        ("/chat/batch", json.dumps({"items": [_body()]}).encode(), _JSON),
        ("/chat/batch", json.dumps({"items": [{"id": {"a": _SECRET}, "body": _body()}]}).encode(), _JSON),
        ("/chat/batch", json.dumps({"items": [{**item, "id": n} for n in range(9)]}).encode(), _JSON),
        ("/chat/batch", _SECRET.encode() + b"\n" + json.dumps(item).encode()[:-2], _NDJSON),
        ("/chat/batch", json.dumps({"id": 1, "body": _body(x="y" * 900_000)}).encode(), _NDJSON),
    ]
    asked = [await gw.ask(path, body, headers=[kind, *_HEADERS]) for path, body, kind in whole + broken]
    asked.append(await gw.ask("/v1/models", headers=_HEADERS))
    return asked


async def _expect_nothing(gw: RunningGateway, answers: Sequence[Answer] = ()) -> None:
    for answer in answers:
        _check("an answer", answer.body)
        _check("the headers of an answer", repr(answer.headers).encode())
    await gw.until(lambda: gw.gateway.running == 0)
    last = await gw.ask("/healthz")
    await gw.line(last.header("x-request-id") or "")
    assert len(gw.log.lines) > 1
    _check("the log", gw.log.text)
    _check("the metrics", (await gw.ask("/metrics")).body)
    _check("the state", (await gw.ask("/readyz")).body)


_FAULTS: dict[str, Sequence[Step]] = {
    "good": json_reply({"ok": 1}),
    "stream": sse_reply(chat_events("a", "b")),
    "error": error_reply(400, "bad"),
    "html": raw_reply(b"<html>", status=502),
    "no-json": raw_reply(b"<html>"),
    "closed": [Close()],
    "reset": [Reset()],
    "cut": [
        Send(head(200, [("content-type", "application/json"), ("content-length", "500")]) + b"{"),
        Reset(),
    ],
    "cut-stream": [
        Send(head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])),
        Send(chunk(sse_event({"a": 1})[:8])),
        Reset(),
    ],
    "silent": [Stall()],
    "half": [
        Send(head(200, [("content-type", "application/json"), ("content-length", "500")]) + b"{"),
        Stall(),
    ],
}


@pytest.mark.parametrize("fault", sorted(_FAULTS))
async def test_nothing_is_told_whatever_the_upstream_does(
    behind: Behind, fault: str, capfd: pytest.CaptureFixture[str]
) -> None:
    clocks = {"first_byte_timeout_s": 0.15, "idle_timeout_s": 0.15, "total_timeout_s": 3}
    async with behind(_FAULTS[fault], max_batch_items=8, max_body_bytes=1_000_000, **clocks) as (_, gw):
        await _expect_nothing(gw, await _ask_everything(gw))
    out, err = capfd.readouterr()
    _check("standard output and error", (out + err).encode())


async def test_nothing_is_told_when_the_upstream_cannot_be_reached(running_gateway: Run) -> None:
    with refusing_upstream() as url:
        async with running_gateway(url, max_batch_items=8, max_body_bytes=1_000_000) as gw:
            await _expect_nothing(gw, await _ask_everything(gw))


async def test_nothing_is_told_when_no_permit_comes_free(behind: Behind) -> None:
    async with behind(concurrency=1, acquire_timeout_s=0.05, max_batch_items=8) as (_, gw):
        await gw.permits.acquire(1)
        try:
            answers = await _ask_everything(gw)
        finally:
            gw.permits.release()
        await _expect_nothing(gw, answers)


async def test_nothing_is_told_when_keys_are_wrong(behind: Behind) -> None:
    async with behind(api_key="the-right-one", upstream_api_key="sk-upstream") as (upstream, gw):
        answers = await _ask_everything(gw)
        assert {answer.status for answer in answers} == {401}
        for answer in answers:
            _check("an answer", answer.body)
        assert not upstream.seen
        await gw.line(answers[-1].header("x-request-id") or "")
        _check("the log", gw.log.text)
        ask = [("authorization", "Bearer the-right-one")]
        metrics = (await gw.ask("/metrics", headers=ask)).body
        _check("the metrics", metrics)
        for text in (gw.log.text, metrics):
            assert b"the-right-one" not in text
            assert b"sk-upstream" not in text


async def test_what_an_upstream_echoes_goes_to_its_client_and_nowhere_else(behind: Behind) -> None:
    def echo(seen: Seen) -> Sequence[Step]:
        return raw_reply(seen.body, status=400, headers=[_JSON])

    async with behind(echo) as (_, gw):
        answer = await gw.ask("/chat", _encoded(), headers=[_JSON, *_HEADERS])
        assert answer.body == _encoded()
        await _expect_nothing(gw)


async def test_nothing_is_told_of_a_client_that_leaves_or_stalls(behind: Behind) -> None:
    async with behind([Stall()], upload_idle_timeout_s=0.2) as (upstream, gw):
        body = _encoded()
        async with gw.wire() as wire:
            await wire.request("/chat", body[:-10], headers=[_JSON, *_HEADERS], length=len(body))
            stalled = await wire.rest()
            assert stalled.status == 408
        async with gw.wire() as wire:
            await wire.request("/chat", body, headers=[_JSON, *_HEADERS])
            await upstream.wait_seen(complete=True)
            wire.leave()
            await gw.until(lambda: gw.permits.held == 0)
        await _expect_nothing(gw, [stalled])


async def test_nothing_is_told_when_the_gateway_is_cut(behind: Behind) -> None:
    async with behind([Stall()]) as (upstream, gw):
        asking = asyncio.create_task(gw.ask("/chat", _encoded(), headers=[_JSON, *_HEADERS]))
        await upstream.wait_seen(complete=True)
        gw.gateway.cut()
        answer = await asking
        assert (answer.status, answer.error["code"]) == (503, "draining")
        await _expect_nothing(gw, [answer])


@pytest.mark.parametrize(
    "octets",
    [
        b"POST /chat HTTP/1.1\r\nauthorization: "
        + _KEY.encode()
        + b"\r\nbad "
        + _SECRET.encode()
        + b"\r\n\r\n",
        _SECRET.encode() + b"\r\n\r\n",
        b"POST /chat HTTP/1.1\r\nx: " + _SECRET.encode() * 1000,
    ],
)
async def test_nothing_is_told_of_a_head_that_is_wrong(behind: Behind, octets: bytes) -> None:
    async with behind(max_header_bytes=4096) as (_, gw):
        async with gw.wire() as wire:
            await wire.send(octets)
            _check("an answer", await wire.closed())
        await gw.ask("/chat", b"{}")
        await _expect_nothing(gw)


async def test_a_path_is_logged_without_its_query(behind: Behind) -> None:
    async with behind() as (_, gw):
        await gw.ask(f"/v1/files?key={_SECRET}", headers=_HEADERS)
        await gw.ask(f"/nope?key={_SECRET}", headers=_HEADERS)
        await _expect_nothing(gw)


async def test_nothing_is_in_the_audit(behind: Behind, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("audit")
    audit = {"database": str(folder / "audit.db")}
    async with behind(json_reply({"ok": 1}), max_batch_items=8, max_body_bytes=1_000_000, audit=audit) as (
        _,
        gw,
    ):
        await _expect_nothing(gw, await _ask_everything(gw))
        await gw.until(lambda: gw.gateway.metrics.audit.value("written") >= 24)
        # with what stands in the log of the database, before it becomes part of it
        written = b"".join(file.read_bytes() for file in folder.iterdir())
    assert b'"kind":"image"' in written
    _check("the audit", written)
    _check("the audit", (folder / "audit.db").read_bytes())


async def test_a_mistake_of_ours_is_told_without_its_words(
    behind: Behind, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What an exception says may be a piece of the body."""

    async def fail(*_: object) -> None:
        try:
            raise KeyError(_SECRET)
        except KeyError as error:
            raise ExceptionGroup(_SECRET, [ValueError(_SECRET)]) from error

    async with behind() as (_, gw):
        monkeypatch.setattr(gw.gateway._stage.relay, "serve", fail)
        answer = await gw.ask("/chat", _encoded(), headers=[_JSON])
        assert (answer.status, answer.error["code"]) == (500, "internal_error")
        await _expect_nothing(gw, [answer])
    assert "ValueError" in caplog.text
    assert "test_canary.py" in caplog.text
    assert _SECRET not in caplog.text


async def test_what_is_read_from_an_answer_is_no_client_s(behind: Behind) -> None:
    """An answer may hold what a client gave names to; of that nothing is read."""
    echo = {"model": "qwen", "metadata": {"system_fingerprint": _SECRET, "model": _SECRET, "usage": {}}}
    async with behind(json_reply(echo)) as (_, gw):
        for path in ("/v1/responses", "/v1/other"):
            assert (await gw.ask(path, {"model": "qwen", "input": "x"})).status == 200
        await _expect_nothing(gw)
