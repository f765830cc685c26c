from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dabom.app.demo import Check, Report, find_samples
from dabom.client import Client
from dabom.testing import ScriptedUpstream, Seen, Step, chat_answer, error_reply, refusing_upstream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Pipeline = Callable[[Seen], list[Step]]


async def _run(root: str, samples: Path, out: Path, language: Any = "ko") -> tuple[Report, list[str]]:
    ticks: list[str] = []
    async with Client(root) as client:
        check = Check(client, find_samples(samples), out, language, ticks.append)
        report = await check.run()
        assert len(ticks) <= check.calls_total
        return report, ticks


def _verdicts(report: Report) -> list[bool]:
    return [row.passed for row in report.rows]


async def test_six_rows_pass_and_the_results_are_kept(
    pipeline: Callable[..., Pipeline], samples_root: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    async with ScriptedUpstream(pipeline(), models=None) as gateway:
        report, ticks = await _run(gateway.root, samples_root, out)
    assert _verdicts(report) == [True] * 6, report.rows
    assert report.passed
    assert len(ticks) == 4 + 2 * 3
    assert [row.route for row in report.rows[:5]] == [
        "GET /healthz",
        "POST /chat",
        "POST /chat",
        "POST /chat",
        "POST /chat/batch",
    ]
    assert "완료순≠입력순 (3 2 1)" in report.rows[4].result
    assert "X-Batch-Total=3" in report.rows[4].result
    calls = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert [call["step"] for call in calls] == ["health", "text", "clip", "black"] + ["sequential"] * 3 + [
        "batch"
    ] * 3
    assert {call["status"] for call in calls} == {200}
    assert all(call["request_bytes"] > 300 and call["answer_bytes"] > 0 for call in calls[2:])
    assert "data:video" not in (out / "results.jsonl").read_text()
    summary = json.loads((out / "summary.json").read_text())
    assert summary["passed"] is True
    assert summary["batch"]["arrival"] == ["0003_0012-0018", "0002_0006-0012", "0001_0000-0006"]
    assert summary["batch"]["arrival_is_input_order"] is False


async def test_the_clip_step_asks_about_the_black_clips_origin(
    pipeline: Callable[..., Pipeline], samples_root: Path, tmp_path: Path
) -> None:
    async with ScriptedUpstream(pipeline(), models=None) as gateway:
        await _run(gateway.root, samples_root, tmp_path / "out")
    clip, black = (seen.json() for seen in [s for s in gateway.seen if s.path == "/chat"][1:3])
    origin = samples_root / "clips" / "news" / "n" / "0002_0006-0012.mp4"
    assert clip == {**black, "messages": clip["messages"]}
    assert clip["messages"][0]["content"][1] == black["messages"][0]["content"][1]
    assert len(clip["messages"][0]["content"][0]["video_url"]["url"]) > origin.stat().st_size
    assert clip["model"] == "qwen"


@pytest.mark.parametrize(
    ("scene", "speech", "words"),
    [
        ("앵커가 말한다.", "말소리가 들린다.", "알아보지 못함"),
        ("검은 화면이다.", "", "알아듣지 못함"),
        ("검은 화면이다.", "음성이 들리지 않는다.", "알아듣지 못함"),
        ("검은 화면이다.", "없음", "알아듣지 못함"),
    ],
)
async def test_a_black_clip_without_black_or_speech_fails(
    pipeline: Callable[..., Pipeline], samples_root: Path, tmp_path: Path, scene: str, speech: str, words: str
) -> None:
    four = {"scene": scene, "on_screen_text": "", "speech": speech, "sound": ""}
    black = chat_answer(json.dumps(four))
    async with ScriptedUpstream(pipeline(black=black), models=None) as gateway:
        report, _ = await _run(gateway.root, samples_root, tmp_path / "out")
    assert _verdicts(report) == [True, True, True, False, True, True]
    assert words in report.rows[3].result


@pytest.mark.parametrize(
    "fault",
    [
        {"failing": "0002_0006-0012"},
        {"total": 4},
        {"order": lambda items: items[:2]},
        {"order": lambda items: [items[0], items[0], items[1]]},
    ],
)
async def test_a_batch_that_is_not_whole_fails(
    pipeline: Callable[..., Pipeline], samples_root: Path, tmp_path: Path, fault: dict[str, Any]
) -> None:
    async with ScriptedUpstream(pipeline(**fault), models=None) as gateway:
        report, _ = await _run(gateway.root, samples_root, tmp_path / "out", "en")
    assert _verdicts(report) == [True, True, True, True, False, True]
    assert not report.passed


async def test_input_order_is_told_and_passes(
    pipeline: Callable[..., Pipeline], samples_root: Path, tmp_path: Path
) -> None:
    async with ScriptedUpstream(pipeline(order=list), models=None) as gateway:
        report, _ = await _run(gateway.root, samples_root, tmp_path / "out", "en")
    assert report.passed
    assert "arrival equals input" in report.rows[4].result


async def test_a_failing_endpoint_fails_rows_and_the_rest_goes_on(samples_root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    async with ScriptedUpstream(error_reply(500, "boom"), models=None) as gateway:
        report, _ = await _run(gateway.root, samples_root, out, "en")
    assert _verdicts(report) == [False] * 5 + [True]
    assert "boom" in report.rows[2].result
    assert json.loads((out / "summary.json").read_text())["passed"] is False
    with refusing_upstream() as url:
        report, _ = await _run(url, samples_root, out, "en")
    assert _verdicts(report) == [False] * 5 + [True]
    assert "connect_failed" in report.rows[0].result


async def test_a_folder_that_cannot_be_written_fails_the_last_row(
    pipeline: Callable[..., Pipeline], samples_root: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("a file, not a folder")
    async with ScriptedUpstream(pipeline(), models=None) as gateway:
        report, _ = await _run(gateway.root, samples_root, tmp_path / "out")
    assert _verdicts(report) == [True] * 5 + [False]
