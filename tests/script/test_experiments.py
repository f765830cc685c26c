from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dabom.testing import ScriptedUpstream, chat_answer, json_reply, raw_reply, refusing_upstream

if TYPE_CHECKING:
    from dabom.testing import Seen, Step

_FOLDER = Path(__file__).parents[2] / "experiments" / "01_pipeline"


async def _run(name: str, *args: str, **env: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(_FOLDER / name), *args),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **env},
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def _gateway(seen: Seen) -> list[Step]:
    if seen.path == "/chat":
        return json_reply(chat_answer())
    items: list[Any] = seen.json()["items"]
    lines = [
        msgspec.json.encode({"id": i["id"], "status": 200, "body": chat_answer()}) + b"\n" for i in items
    ]
    return raw_reply(lines[::-1], headers=[("X-Batch-Total", str(len(items)))], chunked=True)


async def test_batch_throughput_sends_the_same_items_both_ways() -> None:
    async with ScriptedUpstream(_gateway) as gateway:
        code, out, err = await _run("batch_throughput.py", "--url", gateway.root, "--clips", "7")
    assert (code, err) == (0, "")
    assert "7/7" in out.splitlines()[0]
    assert "7/7  X-Batch-Total=7  완료순 ≠ 입력순" in out.splitlines()[1]
    assert out.splitlines()[2].endswith("×")
    *singles, batch = gateway.seen
    assert [seen.json() for seen in singles] == [item["body"] for item in batch.json()["items"]]


async def test_failures_and_wrong_use_have_their_codes(tmp_path: Path) -> None:
    with refusing_upstream() as url:
        code, out, err = await _run("batch_throughput.py", "--url", url, "--clips", "1")
        assert code == 1
        assert "0/1" in out
        assert "connect_failed" in err
        code, out, _ = await _run("api_check.py", "--url", url, "--out", str(tmp_path / "out"))
        assert code == 1
        assert out.count("FAIL") == 5
        assert out.count("PASS") == 1
    code, _, err = await _run("api_check.py", DATA_DIR=str(tmp_path))
    assert code == 2
    assert "clips/**/*.mp4" in err
