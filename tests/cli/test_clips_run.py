"""`dabom clips run` as a process: what it says, how it ends, and that nothing is lost when it is killed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dabom.store import open_runs
from dabom.testing import ScriptedUpstream, Wait, chat_answer, error_reply, json_reply, running_gateway

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dabom.testing import Seen, Step

SAMPLE = Path(__file__).parents[2] / "samples/clips/news/broadcast/0001_0000-0006.mp4"
COUNT, KILLS, CONCURRENCY = 40, 10, 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "clips" / "news"
    folder.mkdir(parents=True)
    for number in range(COUNT):
        # a box that players skip makes each file another one
        box = (16).to_bytes(4, "big") + b"free" + number.to_bytes(8, "big")
        (folder / f"{number:04}.mp4").write_bytes(SAMPLE.read_bytes() + box)
    return folder


def clip_of(seen: Seen) -> str:
    url = seen.json()["messages"][0]["content"][0]["video_url"]["url"]
    return hashlib.sha256(base64.b64decode(url.partition(",")[2])).hexdigest()


def answer(seen: Seen) -> Sequence[Step]:
    said = {"scene": f"장면 {clip_of(seen)[:12]}", "on_screen_text": "", "speech": "", "sound": ""}
    return [Wait(random.uniform(0, 0.03)), *json_reply(chat_answer(json.dumps(said)))]


async def start(folder: Path, *args: str, lang: str = "C") -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dabom.cli", "clips", "run", *args),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "LANG": lang, "LC_ALL": lang, "NO_COLOR": "1"},
        cwd=folder.parents[1],
    )


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def stored(folder: Path) -> tuple[str, dict[str, str]]:
    """The one run of the database, and the hashes of its finished items with their scenes."""
    runs = open_runs(str(folder.parents[1] / "runs.db"), read_only=True)
    (run,) = runs.all()
    items = {item.position: item for item in runs.items(run.id) if item.state == "done"}
    told: dict[str, str] = {}
    for attempt in runs.attempts(run.id):
        item = items.get(attempt.position)
        if item is not None and item.attempt == attempt.number:
            assert item.sha256 not in told
            told[item.sha256] = json.loads(attempt.text)["scene"]
    runs.close()
    return run.id, told


@pytest.mark.timeout(240)
async def test_killed_ten_times_it_ends_with_one_result_for_each_clip(folder: Path) -> None:
    async with ScriptedUpstream(answer, keep_bodies=True) as upstream:
        with running_gateway(upstream.url) as url:
            more = ("--database", "runs.db", "--url", url, "--concurrency", str(CONCURRENCY), "--json")
            args: tuple[str, ...] = (str(folder), "--model", "qwen")
            kills = 0
            before: dict[str, str] = {}
            while kills < KILLS:
                first = len(upstream.seen)
                process = await start(folder, *args, *more)
                await upstream.wait_seen(first + random.randint(1, CONCURRENCY), within_s=30)
                await asyncio.sleep(random.uniform(0, 0.06))
                process.send_signal(signal.SIGKILL)
                await ended(process)
                kills += 1
                await upstream.wait_idle()
                asked = {clip_of(seen) for seen in upstream.seen[first:] if seen.complete}
                assert not asked & before.keys(), "a finished clip was asked again"
                run, before = stored(folder)
                args = ("--resume", run)
            code, out, err = await ended(await start(folder, *args, *more))
            asked_in_all = len(upstream.seen)
            again, _, _ = await ended(await start(folder, *args, *more))
    told = json.loads(out)
    assert (code, again, told["done"], told["failed"], told["open"]) == (0, 0, COUNT, 0, 0), err
    _, results = stored(folder)
    assert results == {sha256: f"장면 {sha256[:12]}" for sha256 in results}
    assert len(results) == COUNT
    assert asked_in_all == len(upstream.seen) <= COUNT + KILLS * CONCURRENCY


async def test_ctrl_c_leaves_a_run_that_goes_on(folder: Path) -> None:
    async with ScriptedUpstream(answer) as upstream:
        with running_gateway(upstream.url) as url:
            more = ("--database", "runs.db", "--url", url, "--concurrency", "1")
            process = await start(folder, str(folder), *more, "--lang", "ko")
            await upstream.wait_seen(3, within_s=30)
            process.send_signal(signal.SIGINT)
            code, out, err = await ended(process)
            run, done = stored(folder)
            assert (code, out) == (130, "")
            assert f"중단했습니다. 이어서 하려면: dabom clips run --resume {run}" in err
            assert 2 <= len(done) < COUNT
            code, out, err = await ended(await start(folder, "--resume", run, *more, "--lang", "en"))
    assert code == 0
    assert f"{COUNT} done, 0 failed, 0 open · {COUNT} requests" in out
    assert f"run {run}: {COUNT} items, runs.db" in err


async def test_failed_clips_end_with_1_and_are_shown_with_their_code(folder: Path) -> None:
    script: Any = lambda seen: error_reply(400, "no such clip")  # noqa: E731 - one line
    async with ScriptedUpstream(script) as upstream:
        with running_gateway(upstream.url) as url:
            args = (str(folder), "--database", "runs.db", "--url", url, "--lang", "ko")
            code, out, _ = await ended(await start(folder, *args))
    assert code == 1
    assert f"완료 0, 실패 {COUNT}, 남음 0" in out
    assert "0% (0%-9%)" in out


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ((), "give the folder of the clips"),
        (("nowhere", "--resume", "x"), "leave DIR out"),
        (("clips", "--controls", "swap-audio"), "a run makes blackout, mute, freeze"),
        (("clips", "--family", "gpt"), "is no family"),
        (("clips", "--prompt", "@nowhere"), "cannot be read"),
        (("clips", "--schema", "nowhere"), "cannot be read"),
        (("empty",), "holds no clip"),
    ],
)
async def test_wrong_use_is_told(folder: Path, args: tuple[str, ...], told: str) -> None:
    (folder.parents[1] / "empty").mkdir()
    async with ScriptedUpstream(answer) as upstream:
        process = await start(folder, *args, "--database", "runs.db", "--url", upstream.root, "--lang", "en")
        code, out, err = await ended(process)
    assert (code, out) == (2, "")
    assert told in err
    assert not upstream.seen


async def test_a_run_that_is_not_there_is_told(folder: Path) -> None:
    code, _, err = await ended(await start(folder, "--resume", "x", "--database", "runs.db", "--lang", "en"))
    assert code == 1
    assert "holds no run x" in err
