from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from dabom.testing import ScriptedUpstream, chat_answer, json_reply, refusing_upstream

if TYPE_CHECKING:
    from pathlib import Path


async def _start(*args: str, **env: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dabom.cli", "demo", *args),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "LANG": "C", "NO_COLOR": "1", **env},
    )


async def _demo(*args: str, **env: str) -> tuple[int | None, str, str]:
    process = await _start(*args, **env)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_a_failed_row_ends_with_1_and_the_table_says_which(tmp_path: Path) -> None:
    async with ScriptedUpstream(json_reply(chat_answer("[bold]저는[/bold] 다봄")), models=None) as gateway:
        code, out, err = await _demo("--url", gateway.root, "--out", str(tmp_path), "--lang", "ko")
    assert (code, err) == (1, "")
    assert "핵심 결과" in out
    assert "❌ FAIL" in out
    assert "x-request-id 없음" in out
    assert "[bold]저는[/bold]" in out


async def test_json_is_one_object(tmp_path: Path) -> None:
    with refusing_upstream() as url:
        code, out, err = await _demo("--url", url, "--out", str(tmp_path), "--json")
    report = json.loads(out)
    assert (code, err) == (1, "")
    assert report["passed"] is False
    assert [row["item"] for row in report["rows"]][:2] == ["Health", "Single, text"]


async def test_no_samples_is_wrong_use(tmp_path: Path) -> None:
    code, out, err = await _demo("--samples", str(tmp_path), "--lang", "ko")
    assert (code, out) == (2, "")
    assert "clips/**/*.mp4" in err


async def test_a_gateway_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    code, out, err = await _demo("--once", "--out", str(tmp_path), VLLM_CONCURRENCY="many")
    assert (code, out) == (1, "")
    assert "gateway.log" in err
    assert (
        "VLLM_CONCURRENCY" in (tmp_path / "gateway.log").read_text()
        or "concurrency" in (tmp_path / "gateway.log").read_text().lower()
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_without_once_the_gateway_stays_until_told_to_stop(tmp_path: Path, number: int) -> None:
    async with ScriptedUpstream(json_reply(chat_answer("네"))) as upstream:
        process = await _start("--out", str(tmp_path), VLLM_BASE_URL=upstream.url)
        assert process.stdout is not None
        shown = b""
        while b"gateway log" not in shown:
            line = await process.stdout.readline()
            assert line, shown.decode()
            shown += line
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        process.send_signal(number)
        await process.communicate()
    assert process.returncode == 1  # an upstream that only says yes fails rows
    assert "/docs" in shown.decode()
    assert "curl" in shown.decode()
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive


@pytest.mark.timeout(240)  # reading ten clips takes 12 s of processor time, which a busy machine has late
async def test_every_row_passes_on_the_built_in_reader(tmp_path: Path) -> None:
    code, out, err = await _demo("--once", "--json", "--out", str(tmp_path), VLLM_BASE_URL="")
    report = json.loads(out)
    assert [row["passed"] for row in report["rows"]] == [True] * 6, report
    assert (code, err.strip()) == (0, "starting the gateway")
    assert report["batch"]["batch_ok"] == report["batch"]["count"] == report["batch"]["x_batch_total"]
    calls = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    clip, black = (json.loads(call["answer"]) for call in calls if call["step"] in ("clip", "black"))
    assert "검은" in black["scene"]
    assert "검은" not in clip["scene"]
    assert "말소리" in black["speech"]
    assert black["on_screen_text"] == ""
    assert clip["on_screen_text"]
