"""Settings loaded anew while requests run: SIGHUP and `POST /admin/reload`."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from dabom.testing import ScriptedUpstream, WaitFor, chat_events, in_turn, json_reply, sse_reply

if TYPE_CHECKING:
    from pathlib import Path

    from tests.app.conftest import Serve, Served

_BODY = b'{"model":"m"}'
_STREAM = b'{"model":"m","stream":true}'
_LOADED = b"dabom: the settings are loaded anew"
_KEPT = b"dabom: the settings stay as they are: "


def _write(folder: Path, *upstreams: str, more: str = "") -> Path:
    file = folder / "dabom.yaml"
    lines = [f"  - {{name: u{number}, url: '{url}', model: m}}" for number, url in enumerate(upstreams)]
    file.write_text("\n".join(["upstreams:", *lines, more, ""]), encoding="utf-8")
    return file


async def _admin(served: Served, key: str = "admin", method: str = "POST") -> tuple[int, dict[str, object]]:
    reader, writer = await served.open()
    writer.write(
        f"{method} /admin/reload HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {key}\r\n"
        "content-length: 0\r\nconnection: close\r\n\r\n".encode()
    )
    async with asyncio.timeout(20):
        text = await reader.read()
    writer.close()
    return int(text.split()[1]), json.loads(text.partition(b"\r\n\r\n")[2])


async def test_a_hangup_reloads_and_drops_no_request(serve: Serve, tmp_path: Path) -> None:
    gate = asyncio.Event()
    events = sse_reply(chat_events("a", "b"))
    old_script = in_turn([*events[:2], WaitFor(gate), *events[2:]], [WaitFor(gate), *json_reply({"old": 1})])
    async with (
        ScriptedUpstream(old_script) as old,
        ScriptedUpstream(json_reply({"new": 1})) as new,
        serve("--config", str(_write(tmp_path, old.url))) as served,
    ):
        streaming = asyncio.create_task(served.ask("/chat", _STREAM))
        await old.wait_seen(1)
        asking = asyncio.create_task(served.ask("/chat", _BODY))
        await old.wait_seen(2)
        _write(tmp_path, new.url)
        served.signal(signal.SIGHUP)
        await served.says(_LOADED)
        assert (await served.ask("/chat", _BODY)).endswith(b'{"new":1}')
        assert not streaming.done()
        gate.set()
        assert b"data: [DONE]" in await streaming
        assert (await asking).endswith(b'{"old":1}')
        assert (len(old.seen), len(new.seen)) == (2, 1)
        served.signal()
        assert await served.ended() == 0
        assert b"Traceback" not in served.stderr


async def test_a_broken_file_changes_nothing_and_is_told_with_its_line(serve: Serve, tmp_path: Path) -> None:
    async with ScriptedUpstream(json_reply({"old": 1})) as old:
        file = _write(tmp_path, old.url)
        async with serve("--config", str(file), DABOM_ADMIN_KEY="admin") as served:
            file.write_text("port: 1\nupstreams: []\nconcurency: 3\n", encoding="utf-8")
            served.signal(signal.SIGHUP)
            await served.says(_KEPT + f"{file}, line 3: there is no setting concurency".encode())
            status, told = await _admin(served)
            error = told["error"]
            assert isinstance(error, dict)
            assert (status, error["code"]) == (422, "reload_refused")
            assert f"{file}, line 3: " in error["message"]
            file.unlink()
            assert (await _admin(served))[0] == 422
            assert (await served.ask("/chat", _BODY)).endswith(b'{"old":1}')


async def test_the_path_reloads_and_wants_the_admin_key(serve: Serve, tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(json_reply({"old": 1})) as old,
        ScriptedUpstream(json_reply({"new": 1})) as new,
    ):
        file = _write(tmp_path, old.url)
        async with serve("--config", str(file), DABOM_ADMIN_KEY="admin") as served:
            _write(tmp_path, new.url, more="port: 9\nlog_file: x.log")
            assert (await _admin(served, "wrong"))[0] in (401, 403)
            assert (await _admin(served, method="GET"))[0] == 405
            assert (await served.ask("/chat", _BODY)).endswith(b'{"old":1}')
            status, told = await _admin(served)
            assert (status, told["reloaded"]) == (200, True)
            assert told["after_restart"] == ["log_file"]  # the port is an argument of the command
            assert (await served.ask("/chat", _BODY)).endswith(b'{"new":1}')


async def test_without_an_admin_key_there_is_no_such_path(serve: Serve, tmp_path: Path) -> None:
    async with ScriptedUpstream() as old, serve("--config", str(_write(tmp_path, old.url))) as served:
        assert (await _admin(served))[0] in (401, 403, 404)


async def test_a_gateway_that_others_reach_cannot_lose_its_keys(serve: Serve, tmp_path: Path) -> None:
    async with ScriptedUpstream() as old:
        file = _write(tmp_path, old.url, more="host: 0.0.0.0\napi_key: sk")
        async with serve("--config", str(file), wait=False) as served:
            await served.says(b"dabom listens on http://0.0.0.0:", 40)
            _write(tmp_path, old.url, more="host: 127.0.0.1")
            served.signal(signal.SIGHUP)
            await served.says(_KEPT + b"host is 0.0.0.0, which others can reach, and there is no key")


async def test_limits_hold_for_connections_that_come_after(serve: Serve, tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(json_reply({"old": 1})) as old,
        serve("--config", str(_write(tmp_path, old.url))) as served,
    ):
        path = "/chat?" + "x" * 3000
        assert b" 200 " in (await served.ask(path, _BODY))[:20]
        _write(tmp_path, old.url, more="limits: {max_header_bytes: 1024, max_body_bytes: 1024}")
        served.signal(signal.SIGHUP)
        await served.says(_LOADED)
        assert b" 431 " in (await served.ask(path, _BODY))[:20]
        assert b" 413 " in (await served.ask("/chat", b'{"a":"%b"}' % (b"x" * 2000)))[:20]


@pytest.mark.parametrize("changed", ["", "idle_timeout_s: 50"])
async def test_an_upstream_that_stays_gets_no_more_requests_than_it_may(
    serve: Serve, tmp_path: Path, changed: str
) -> None:
    gate = asyncio.Event()
    script = in_turn([WaitFor(gate), *json_reply({"first": 1})], json_reply({"second": 1}))
    async with ScriptedUpstream(script) as upstream:
        file = _write(tmp_path, upstream.url, more="concurrency: 1")
        async with serve("--config", str(file)) as served:
            first = asyncio.create_task(served.ask("/chat", _BODY))
            await upstream.wait_seen(1)
            _write(tmp_path, upstream.url, more=f"concurrency: 1\n{changed}")
            served.signal(signal.SIGHUP)
            await served.says(_LOADED)
            second = asyncio.create_task(served.ask("/chat", _BODY))
            await asyncio.sleep(0.4)
            assert [one.method for one in upstream.seen if one.method == "POST"] == ["POST"]
            gate.set()
            assert (await first).endswith(b'{"first":1}')
            assert (await second).endswith(b'{"second":1}')


@pytest.mark.parametrize("way", [["other"], ["u1", "u0"]])
async def test_a_server_gets_no_more_than_it_may_under_another_name_or_when_it_comes_back(
    serve: Serve, tmp_path: Path, way: list[str]
) -> None:
    gate = asyncio.Event()
    script = in_turn([WaitFor(gate), *json_reply({"first": 1})], json_reply({"second": 1}))
    async with ScriptedUpstream(script) as upstream, ScriptedUpstream() as spare:
        file = _write(tmp_path, upstream.url, more="concurrency: 1")
        async with serve("--config", str(file)) as served:
            first = asyncio.create_task(served.ask("/chat", _BODY))
            await upstream.wait_seen(1)
            for number, name in enumerate(way, 1):
                url = spare.url if name == "u1" else upstream.url
                file.write_text(f"upstreams: [{{name: {name}, url: '{url}', model: m, concurrency: 1}}]\n")
                served.signal(signal.SIGHUP)
                async with asyncio.timeout(10):
                    while served.stderr.count(_LOADED) < number:  # noqa: ASYNC110 - a file has no event
                        await asyncio.sleep(0.02)
            second = asyncio.create_task(served.ask("/chat", _BODY))
            await asyncio.sleep(0.4)
            assert len(upstream.seen) == 1
            gate.set()
            assert (await first).endswith(b'{"first":1}')
            assert (await second).endswith(b'{"second":1}')


async def test_more_permits_let_those_in_who_wait(serve: Serve, tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with ScriptedUpstream([WaitFor(gate), *json_reply({"x": 1})]) as upstream:
        file = _write(tmp_path, upstream.url, more="concurrency: 1")
        async with serve("--config", str(file)) as served:
            asking = [asyncio.create_task(served.ask("/chat", _BODY)) for _ in range(3)]
            await upstream.wait_seen(1)
            _write(tmp_path, upstream.url, more="concurrency: 3")
            served.signal(signal.SIGHUP)
            await upstream.wait_seen(3)
            gate.set()
            assert all(text.endswith(b'{"x":1}') for text in await asyncio.gather(*asking))


async def test_a_reader_comes_and_goes_with_the_need_for_it(serve: Serve, tmp_path: Path) -> None:
    async with ScriptedUpstream(json_reply({"old": 1})) as old:
        file = _write(tmp_path, old.url)
        async with serve("--config", str(file)) as served:
            assert served.family() == []
            file.write_text("concurrency: 3\n", encoding="utf-8")
            served.signal(signal.SIGHUP)
            await served.says(_LOADED, 40)
            assert b"dabom-reader" in await served.ask("/v1/models")
            (reader,) = served.family()[:1]
            _write(tmp_path, old.url)
            served.signal(signal.SIGHUP)
            async with asyncio.timeout(20):
                while reader.is_running() and reader.status() != "zombie":  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.05)
            assert (await served.ask("/chat", _BODY)).endswith(b'{"old":1}')


async def test_many_hangups_and_requests_at_once(serve: Serve, tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(json_reply({"x": 1})) as one,
        ScriptedUpstream(json_reply({"x": 1})) as two,
        serve("--config", str(_write(tmp_path, one.url))) as served,
    ):

        async def ask() -> list[bytes]:
            return [(await served.ask("/chat", _BODY))[:15] for _ in range(12)]

        asking = [asyncio.create_task(ask()) for _ in range(4)]
        for number in range(10):
            _write(tmp_path, (one.url, two.url)[number % 2])
            served.signal(signal.SIGHUP)
            await asyncio.sleep(0.02)
        answers = [answer for task in asking for answer in await task]
        assert set(answers) == {b"HTTP/1.1 200 OK"}
        assert one.seen
        assert two.seen


async def test_a_hangup_before_the_port_opens_reloads_once_it_is(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "dabom.yaml"
    file.write_text("concurrency: 2\n", encoding="utf-8")  # the reader takes seconds to start
    async with serve("--config", str(file), wait=False) as served:
        async with asyncio.timeout(30):
            while not served.family():  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
        assert b"listens" not in served.stderr
        file.write_text("concurrency: 3\n", encoding="utf-8")
        served.signal(signal.SIGHUP)
        await served.says(_LOADED, 40)
        assert served.stderr.index(b"dabom listens") < served.stderr.index(_LOADED)
        served.signal()
        assert await served.ended() == 0


_IN_A_TERMINAL = """
import os, pty, sys, time
pid, master = pty.fork()
if not pid:
    os.execv(sys.executable, [sys.executable, "-m", "dabom.cli", "serve", "--port", "0", *sys.argv[1:]])
text = b""
while b"dabom listens" not in text:
    text += os.read(master, 1024)
os.kill(pid, 1)
while b"loaded anew" not in text:
    text += os.read(master, 1024)
os.close(master)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_in_a_terminal_a_hangup_reloads_and_its_closing_is_the_end(tmp_path: Path) -> None:
    file = _write(tmp_path, "http://127.0.0.1:9/v1")
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_TERMINAL, "--config", str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=40,
        check=True,
    )
    assert done.stdout == "0\n"
