"""Runs in a database as a run of clips leaves them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from dabom.clips.plan import RunSettings
from dabom.clips.start import start_run
from dabom.store import Attempt, Run, Runs

if TYPE_CHECKING:
    from pathlib import Path

SCENE = '=앵커가 "첫눈" 소식을 전한다.\n눈이 내린다'


def put_clips(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(hashlib.sha256(name.encode()).digest() * 40)


def answer(scene: str = SCENE, speech: str = "") -> str:
    return json.dumps(
        {"scene": scene, "on_screen_text": "서울", "speech": speech, "sound": ""}, ensure_ascii=False
    )


def attempt(position: int, text: str, code: str = "", number: int = 1, elapsed_ms: float = 250.0) -> Attempt:
    usage = {"prompt_tokens": 1400, "completion_tokens": 90, "tokens": {"video": 1401, "audio": 1401}}
    asked = {"seed": number - 1, "max_tokens": 1024, "sound": True, "predicted": {"audio": 1401}, "bytes": 9}
    return Attempt(
        position,
        number,
        1_800_000_000 + position,
        elapsed_ms,
        200,
        code,
        (code,) if code else (),
        "assistant\n" + text,
        text,
        usage,
        asked,
    )


def stored_run(runs: Runs, folder: Path, **settings: object) -> Run:
    """A run over the folder: the first clip done, the second failed after two attempts, the rest open."""
    run = start_run(runs, folder, RunSettings("qwen", **settings), "http://gateway")  # type: ignore[arg-type]
    runs.record(run.id, attempt(0, answer()), "done")
    runs.record(run.id, attempt(1, "", "empty"), "open")
    runs.record(run.id, attempt(1, "", "empty", 2), "failed")
    return run
