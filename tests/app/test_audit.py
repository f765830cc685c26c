"""The audit of `dabom serve`: a disk that is full for a while, a kill, an end in order."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from dabom.app.audit import build_audit
from dabom.errors import ConfigError
from dabom.gateway import AuditSettings, Metrics
from dabom.gateway.account import Record
from dabom.store import open_audit, verify
from dabom.testing import ScriptedUpstream, json_reply

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.app.conftest import Serve, Served

_BODY = b'{"model":"qwen","messages":[]}'


def _setting(database: Path, **more: str) -> str:
    return json.dumps({"database": str(database), **more})


def _records(database: Path) -> list[dict[str, Any]]:
    chain = open_audit(str(database), read_only=True)
    assert verify(chain).faults == ()
    records = [json.loads(row.record) for row in chain.rows(1)]
    chain.close()
    return records


async def _ask_until(served: Served, status: bytes, within_s: float = 20) -> int:
    """Ask until the answer has that status; how many had another one."""
    others = 0
    async with asyncio.timeout(within_s):
        while not (await served.ask("/chat", _BODY)).startswith(b"HTTP/1.1 " + status):
            others += 1
            await asyncio.sleep(0.02)
    return others


async def test_on_a_full_disk_nothing_is_let_in_until_there_is_room(serve: Serve, tmp_path: Path) -> None:
    database = tmp_path / "audit.db"
    async with (
        ScriptedUpstream(json_reply({"ok": 1})) as upstream,
        serve(VLLM_BASE_URL=upstream.url, DABOM_AUDIT=_setting(database)) as served,
    ):
        await _ask_until(served, b"200")
        pid, room = served.child.pid, os.stat(f"{database}-wal").st_size + 20_000  # noqa: PTH116 - no waiting
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (room, hard))
        accepted = 1 + await _ask_until(served, b"503")
        await served.says(b"audit: cannot write, new requests are refused")
        assert b"audit_unavailable" in await served.ask("/v1/models")
        assert (await served.ask("/healthz")).startswith(b"HTTP/1.1 200")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        await _ask_until(served, b"200")
        await served.says(b"audit: the database can be written again")
        served.signal()
        assert await served.ended() == 0
    records = _records(database)
    requests = [one for one in records if one["kind"] == "request"]
    assert [one["status"] for one in requests] == [200] * (accepted + 1)
    assert sum(one["refused"] for one in records if one["kind"] == "gap") >= 2
    assert b"Traceback" not in served.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system of its own needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_a_file_system_without_room_is_survived(serve: Serve, small_disk: Path) -> None:
    database, ballast = small_disk / "audit.db", small_disk / "ballast"
    setting = _setting(database, on_failure="continue")
    async with (
        ScriptedUpstream(json_reply({"ok": 1})) as upstream,
        serve(VLLM_BASE_URL=upstream.url, DABOM_AUDIT=setting) as served,
    ):
        with ballast.open("wb") as file:
            free = os.statvfs(small_disk)
            file.write(bytes(free.f_bavail * free.f_frsize))
        for _ in range(20):
            assert (await served.ask("/chat", _BODY)).startswith(b"HTTP/1.1 200")
        await served.says(b"database or disk is full")
        ballast.unlink()
        await served.says(b"audit: the database can be written again")
        served.signal()
        assert await served.ended() == 0
    assert [one["kind"] for one in _records(database)] == ["request"] * 20


async def test_a_killed_gateway_leaves_a_chain_that_is_whole(serve: Serve, tmp_path: Path) -> None:
    database = tmp_path / "audit.db"
    async with ScriptedUpstream(json_reply({"ok": 1})) as upstream:
        settings = {"VLLM_BASE_URL": upstream.url, "DABOM_AUDIT": _setting(database)}
        async with serve(**settings) as served:
            for _ in range(30):
                await served.ask("/chat", _BODY)
            await asyncio.sleep(0.3)
            served.signal(signal.SIGKILL)
            await served.ended()
        assert len(_records(database)) == 30
        async with serve(**settings) as served:
            await served.ask("/chat", _BODY)
            served.signal()
            assert await served.ended() == 0
    assert [one["seq"] for one in _records(database)] == list(range(1, 32))


async def test_a_database_that_cannot_be_opened_keeps_the_gateway_from_starting(
    serve: Serve, tmp_path: Path
) -> None:
    setting = _setting(tmp_path / "no" / "audit.db")
    async with serve(wait=False, VLLM_BASE_URL="http://127.0.0.1:1/v1", DABOM_AUDIT=setting) as served:
        assert await served.ended() == 2
        assert b"audit.database cannot be opened" in served.stderr


def test_continue_starts_without_a_database_and_finds_it_later(tmp_path: Path) -> None:
    folder, metrics = tmp_path / "later", Metrics()
    settings = AuditSettings(database=str(folder / "audit.db"), on_failure="continue")
    audit = build_audit(settings, metrics)
    assert audit is not None
    audit.write(Record("r", "/chat", time=1.0))
    folder.mkdir()
    audit.close()
    assert [one["request_id"] for one in _records(folder / "audit.db")] == ["r"]


@pytest.mark.parametrize("policy", ["refuse", "continue"])
def test_an_address_that_can_be_none_is_a_mistake(policy: str) -> None:
    settings = AuditSettings.model_validate({"database": "mysql://a:geheim@b/c", "on_failure": policy})
    with pytest.raises(ConfigError, match="of the kind mysql"):
        build_audit(settings, Metrics())
    assert "geheim" not in repr(settings)
