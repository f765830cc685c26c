"""Runs against a real gateway whose upstream is scripted."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import threading
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dabom.client import Client
from dabom.clips.controls import KINDS, control_bytes
from dabom.clips.folder import find_items
from dabom.clips.plan import RunSettings
from dabom.clips.results import read_results, summary
from dabom.clips.run import Runner
from dabom.clips.start import start_run
from dabom.errors import AskError, Refused
from dabom.store import open_runs
from dabom.testing import ScriptedUpstream, chat_answer, error_reply, json_reply, running_gateway

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from dabom.clips.results import Result
    from dabom.store import Run, Runs
    from dabom.testing import Seen, Step

SAMPLE = Path(__file__).parents[2] / "samples/clips/news/broadcast/0001_0000-0006.mp4"
COUNT = 6


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as found:
        yield found


class Upstream:
    """A scripted upstream in a loop of its own, and a gateway in front of it."""

    def __init__(self) -> None:
        self.script: Callable[[Seen], Sequence[Step]] = answer
        self.bodies: list[dict[str, Any]] = []
        self.loop = asyncio.new_event_loop()

    def __enter__(self) -> Upstream:
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.server = ScriptedUpstream(self.play)
        self.call(self.server.__aenter__())
        self.gateway = running_gateway(self.server.url)
        self.root = self.gateway.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.gateway.__exit__(None, None, None)
        self.call(self.server.__aexit__())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()

    def call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def play(self, seen: Seen) -> Sequence[Step]:
        self.bodies.append(seen.json())
        return self.script(seen)


def clip_of(body: dict[str, Any]) -> str:
    url = body["messages"][0]["content"][0]["video_url"]["url"]
    return hashlib.sha256(base64.b64decode(url.partition(",")[2])).hexdigest()


def text_for(body: dict[str, Any], **more: str) -> str:
    said = {"scene": f"장면 {clip_of(body)[:12]}", "on_screen_text": "", "speech": "", "sound": "", **more}
    return json.dumps(said, ensure_ascii=False)


def answer(seen: Seen) -> Sequence[Step]:
    return reply(text_for(seen.json()))


def reply(text: str, finish: str = "stop", tokens: dict[str, int] | None = None) -> Sequence[Step]:
    told = chat_answer(text)
    told["choices"][0]["finish_reason"] = finish
    if tokens is not None:
        told["usage"]["prompt_tokens_details"] = {"multimodal_tokens": tokens}
    return json_reply(told)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "clips" / "news"
    folder.mkdir(parents=True)
    for number in range(COUNT):
        # a box that players skip makes each file another one
        box = (16).to_bytes(4, "big") + b"free" + number.to_bytes(8, "big")
        (folder / f"{number:04}.mp4").write_bytes(SAMPLE.read_bytes() + box)
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    found = open_runs(str(tmp_path / "runs.db"))
    yield found
    found.close()


@asynccontextmanager
async def runner(upstream: Upstream, runs: Runs, run: Run, **more: Any) -> AsyncIterator[Runner]:
    upstream.bodies.clear()
    async with Client(upstream.root) as client:
        yield Runner(client, runs, run, make_control=make_control, **{"concurrency": 3, **more})


def make_control(content: bytes, kind: str) -> bytes:
    return control_bytes(content, next(known for known in KINDS if known == kind))


async def work(
    upstream: Upstream, runs: Runs, folder: Path, script: Any = answer, **settings: Any
) -> list[Result]:
    upstream.script = script
    run = start_run(runs, folder, RunSettings("qwen", **settings), "")
    async with runner(upstream, runs, run) as found:
        await found.work()
    return read_results(runs, run)


async def test_every_clip_gets_its_own_answer(upstream: Upstream, runs: Runs, folder: Path) -> None:
    results = await work(upstream, runs, folder)
    assert [result.item.name for result in results] == [f"{number:04}" for number in range(COUNT)]
    assert [result.item.state for result in results] == ["done"] * COUNT
    for result in results:
        assert result.value["scene"] == f"장면 {result.item.sha256[:12]}"
        assert (result.attempts, result.codes) == (1, ("sound_unproven",))
        assert result.attempt is not None
        assert result.attempt.asked["bytes"] > SAMPLE.stat().st_size
        assert (result.attempt.usage["prompt_tokens"] or 0) > 0
    assert len(upstream.bodies) == COUNT
    assert upstream.bodies[0]["mm_processor_kwargs"] == {"use_audio_in_video": True, "fps": 2.0}


async def test_a_bad_answer_is_asked_again_with_another_seed(
    upstream: Upstream, runs: Runs, folder: Path
) -> None:
    def script(seen: Seen) -> Sequence[Step]:
        body = seen.json()
        return reply("" if body["seed"] == 7 else text_for(body))

    results = await work(upstream, runs, folder, script, seed=7)
    assert [(result.item.state, result.attempts) for result in results] == [("done", 2)] * COUNT
    assert Counter(body["seed"] for body in upstream.bodies) == {7: COUNT, 8: COUNT}


async def test_an_answer_that_stays_bad_is_kept_as_failed(
    upstream: Upstream, runs: Runs, folder: Path
) -> None:
    results = await work(upstream, runs, folder, lambda _: reply('{"scene": "끝이 없', "length"))
    assert [(result.item.state, result.item.code, result.attempts) for result in results] == [
        ("failed", "cut_at_length", 2)
    ] * COUNT
    assert Counter(body["max_tokens"] for body in upstream.bodies) == {1024: COUNT, 2048: COUNT}
    assert results[0].text == '{"scene": "끝이 없'


async def test_a_leak_is_stripped_and_both_are_kept(upstream: Upstream, runs: Runs, folder: Path) -> None:
    results = await work(upstream, runs, folder, lambda seen: reply("assistant\n" + text_for(seen.json())))
    attempt = results[0].attempt
    assert attempt is not None
    assert (results[0].item.state, attempt.raw) == ("done", "assistant\n" + attempt.text)
    assert "template_leak" in results[0].codes


async def test_sound_that_was_not_used_fails_at_once(upstream: Upstream, runs: Runs, folder: Path) -> None:
    results = await work(
        upstream,
        runs,
        folder,
        lambda seen: reply(text_for(seen.json()), tokens={"video": 1320}),
        family="qwen3-omni",
    )
    assert {(result.item.state, result.item.code, result.attempts) for result in results} == {
        ("failed", "sound_missing", 1)
    }


async def test_sound_that_was_used_as_predicted_is_done(upstream: Upstream, runs: Runs, folder: Path) -> None:
    first = await work(upstream, runs, folder, family="qwen3-omni")
    assert first[0].attempt is not None
    tokens = dict(first[0].attempt.asked["predicted"])
    results = await work(
        upstream, runs, folder, lambda seen: reply(text_for(seen.json()), tokens=tokens), family="qwen3-omni"
    )
    assert {(result.item.state, result.codes) for result in results} == {("done", ())}


async def test_what_the_server_refuses_is_final_and_the_others_go_on(
    upstream: Upstream, runs: Runs, folder: Path
) -> None:
    bad = hashlib.sha256((folder / "0002.mp4").read_bytes()).hexdigest()

    def script(seen: Seen) -> Sequence[Step]:
        return error_reply(400, "bad clip") if clip_of(seen.json()) == bad else answer(seen)

    results = await work(upstream, runs, folder, script)
    assert [result.item.state for result in results] == ["done", "done", "failed", "done", "done", "done"]
    failed = results[2].attempt
    assert failed is not None
    assert (failed.status, failed.usage["error"], results[2].attempts) == (400, "bad clip", 1)


async def test_a_clip_that_was_changed_or_removed_fails_with_its_code(
    upstream: Upstream, runs: Runs, folder: Path
) -> None:
    upstream.script = answer
    run = start_run(runs, folder, RunSettings("qwen"), "")
    (folder / "0001.mp4").write_bytes(SAMPLE.read_bytes())
    (folder / "0004.mp4").unlink()
    async with runner(upstream, runs, run) as found:
        await found.work()
    codes = [item.code for item in runs.items(run.id)]
    assert codes == ["", "clip_changed", "", "", "unreadable", ""]
    assert len(upstream.bodies) == COUNT - 2


async def test_controls_are_made_asked_and_judged(upstream: Upstream, runs: Runs, folder: Path) -> None:
    real = {item.sha256 for item in find_items(folder)}

    def script(seen: Seen) -> Sequence[Step]:
        body = seen.json()
        if clip_of(body) in real:
            return answer(seen)
        return reply(text_for(body, scene="검은 화면입니다.", speech="앵커가 말한다."))

    results = await work(upstream, runs, folder, script, controls=("blackout", "mute"), every=3)
    made = [result for result in results if result.item.control]
    assert [(result.item.name, result.claims) for result in made] == [
        ("0000#blackout", False),
        ("0000#mute", True),
        ("0003#blackout", False),
        ("0003#mute", True),
    ]
    assert not {str(result.attempt and result.attempt.asked["sha256"]) for result in made} & real
    assert len(find_items(folder)) == COUNT
    (run,) = runs.all()
    rows = summary(run, results)["controls"]
    assert [(row["control"], row["category"], row["count"], row["total"]) for row in rows] == [
        ("blackout", "", 0, 2),
        ("blackout", "news", 0, 2),
        ("mute", "", 2, 2),
        ("mute", "news", 2, 2),
    ]
    assert 0 < rows[2]["low"] < 0.5
    assert rows[2]["high"] == 1


async def test_answers_that_are_alike_are_told(upstream: Upstream, runs: Runs, folder: Path) -> None:
    results = await work(upstream, runs, folder, lambda _: reply(text_of("같은 말")))
    assert ["same_as_neighbour" in result.codes for result in results] == [True] * COUNT


def text_of(scene: str) -> str:
    return json.dumps({"scene": scene, "on_screen_text": "", "speech": "", "sound": ""})


async def test_a_server_that_stays_busy_interrupts_the_run_and_costs_no_item(
    upstream: Upstream, runs: Runs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dabom.clips.retry.MOST_WAIT_S", 0.01)
    with pytest.raises(Refused, match="refusals"):
        await work(upstream, runs, folder, lambda _: error_reply(503, "loading"))
    (run,) = runs.all()
    assert runs.counts(run.id) == {"open": COUNT}
    upstream.script = answer
    async with runner(upstream, runs, run) as found:
        await found.work()
    assert runs.counts(run.id) == {"done": COUNT}


async def test_whoever_cancels_a_run_goes_on_with_what_is_open(
    upstream: Upstream, runs: Runs, folder: Path
) -> None:
    upstream.script = answer
    run = start_run(runs, folder, RunSettings("qwen"), "")
    seen: list[object] = []
    two = asyncio.Event()

    def tick(outcome: object) -> None:
        seen.append(outcome)
        if len(seen) == 2:
            two.set()

    async with runner(upstream, runs, run, concurrency=1, tick=tick) as found:
        task = asyncio.create_task(found.work())
        await two.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    done = runs.counts(run.id)["done"]
    assert 2 <= done < COUNT
    async with runner(upstream, runs, run) as found:
        await found.work()
    assert len(upstream.bodies) == COUNT - done
    assert runs.counts(run.id) == {"done": COUNT}


async def test_a_gateway_that_is_not_there_leaves_the_run_as_it_is(
    runs: Runs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dabom.clips.run._LONGEST_PAUSE_S", 0.01)
    run = start_run(runs, folder, RunSettings("qwen"), "")
    async with Client("http://127.0.0.1:9") as client:
        with pytest.raises(AskError):
            await Runner(client, runs, run).work()
    assert runs.counts(run.id) == {"open": COUNT}
    assert list(runs.attempts(run.id)) == []
