from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from dabom.testing import Seen, Step, chat_answer, error_reply, json_reply, raw_reply

if TYPE_CHECKING:
    from pathlib import Path

Pipeline = Callable[[Seen], list[Step]]

_CLIP = b"\0\0\0\x18ftypisom" + bytes(range(256))
_NDJSON = ("content-type", "application/x-ndjson")


def _strict(**fields: str) -> dict[str, Any]:
    four = {"scene": "", "on_screen_text": "", "speech": "", "sound": "", **fields}
    return chat_answer(msgspec.json.encode(four).decode())


@pytest.fixture
def samples_root(tmp_path: Path) -> Path:
    """Three clips and the black one of the second; a black clip ends in BLACK."""
    for name in ("0001_0000-0006", "0002_0006-0012", "0003_0012-0018"):
        path = tmp_path / "samples" / "clips" / "news" / "n" / f"{name}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_CLIP + name.encode())
    black = tmp_path / "samples" / "blackout" / "news" / "n" / "0002_0006-0012.mp4"
    black.parent.mkdir(parents=True)
    black.write_bytes(_CLIP + b"BLACK!")
    return tmp_path / "samples"


@pytest.fixture
def pipeline() -> Callable[..., Pipeline]:
    """A gateway as the check sees one; `black` answers the black clip, `order` sorts the batch's lines."""

    def make(
        black: dict[str, Any] | None = None,
        order: Callable[[list[Any]], list[Any]] = lambda items: items[::-1],
        total: int | None = None,
        failing: str = "",
    ) -> Pipeline:
        spoken = _strict(scene="검은 화면이 이어진다.", speech="말소리가 0.3초부터 들린다.")

        def answer(body: dict[str, Any]) -> dict[str, Any]:
            content = body["messages"][0]["content"]
            if isinstance(content, str):
                return chat_answer("저는 다봄입니다.")
            url = content[0]["video_url"]["url"]
            is_black = base64.b64decode(url.partition(",")[2]).endswith(b"BLACK!")
            return (black or spoken) if is_black else _strict(scene="뉴스 앵커가 말한다.", speech="첫눈 소식")

        def script(seen: Seen) -> list[Step]:
            if seen.path == "/healthz":
                return json_reply({"ok": True}, headers=[("X-Request-Id", "r1")])
            if seen.path == "/v1/models":
                return json_reply({"data": [{"id": "qwen"}]})
            if seen.path == "/chat":
                return json_reply(answer(seen.json()))
            if seen.path != "/chat/batch":
                return error_reply(404)
            items = seen.json()["items"]
            lines = []
            for item in order(items):
                outcome: dict[str, Any] = {"status": 200, "body": answer(item["body"])}
                if item["id"] == failing:
                    outcome = {"status": 500, "error": "out of memory"}
                lines.append(msgspec.json.encode({"id": item["id"], "elapsed_ms": 5, **outcome}) + b"\n")
            count = len(items) if total is None else total
            return raw_reply(lines, headers=[_NDJSON, ("X-Batch-Total", str(count))], chunked=True)

        return script

    return make
