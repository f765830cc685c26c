from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from dabom.app.demo import find_samples
from dabom.client import clip_request
from dabom.testing import ScriptedUpstream, chat_answer, error_reply, json_reply, raw_reply

_SCRIPT = Path(__file__).parents[2] / "script" / "curl_examples.sh"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


async def _run(verb: str, url: str, tmp: Path, key: str = "") -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(str(_SCRIPT), verb),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "DABOM_BIN": str(Path(sys.executable).parent),
            "DABOM_URL": url,
            "DABOM_API_KEY": key,
            "TMPDIR": str(tmp),
        },
    )
    out, err = await process.communicate()
    assert await asyncio.to_thread(os.listdir, tmp) == []  # no media is left behind
    return process.returncode, out.decode(), err.decode()


async def test_chat_sends_the_clip_request(tmp_path: Path) -> None:
    async with ScriptedUpstream(json_reply(chat_answer("장면"))) as gateway:
        code, out, err = await _run("chat", gateway.root, tmp_path, key="k1")
    assert (code, err) == (0, "")
    assert json.loads(out) == chat_answer("장면")
    assert '  "object"' in out
    seen = gateway.seen[0]
    assert (seen.path, seen.header("authorization")) == ("/chat", "Bearer k1")
    assert seen.body == (await clip_request(find_samples().clips[0])).body


async def test_batch_prints_each_line(tmp_path: Path) -> None:
    lines = [msgspec.json.encode({"id": id_, "status": 200, "body": {}}) + b"\n" for id_ in "ba"]
    async with ScriptedUpstream(raw_reply(lines, chunked=True)) as gateway:
        code, out, err = await _run("batch", gateway.root, tmp_path)
    assert (code, err) == (0, "")
    assert out.index('"id": "b"') < out.index('"id": "a"')
    assert gateway.seen[0].path == "/chat/batch"
    assert gateway.seen[0].header("authorization") is None
    assert [item["id"][:4] for item in gateway.seen[0].json()["items"]] == ["0001", "0002", "0003"]


async def test_failures_and_wrong_use_have_their_codes(tmp_path: Path) -> None:
    async with ScriptedUpstream(error_reply(413, "too big")) as gateway:
        code, out, _ = await _run("chat", gateway.root, tmp_path)
        assert code == 1
        assert "too big" in out
        assert (await _run("sing", gateway.root, tmp_path))[0] == 2
