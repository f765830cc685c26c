"""The example fleet as a process: each row of its table, also with its first target down."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dabom.testing import ScriptedUpstream, json_reply

if TYPE_CHECKING:
    from tests.app.conftest import Serve

    from dabom.testing.upstream import Script

_FILE = Path(__file__).parents[2] / "deploy" / "examples" / "seed-fleet.yaml"
_MLX, _TEXT, _LARGE, _SMALL = "qwen3-14b-mlx", "qwen3-30b", "qwen3-vl-30b", "qwen3-vl-8b"
_ADDRESSES = {
    _MLX: "http://mac-studio:8000/v1",
    _TEXT: "http://cuda-node:8100/v1",
    _LARGE: "http://cuda-node:8200/v1",
    _SMALL: "http://cuda-node:8201/v1",
}
_PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLv"
    "AAAAAElFTkSuQmCC"
)
# what is asked for, with a picture or not: where it goes, and where when that is down (None: nowhere)
_ROWS: dict[str, tuple[str, bool, str, str | None]] = {
    "text, usual": ("auto", False, _MLX, _TEXT),
    "text, thinking": ("auto-thinking", False, _TEXT, None),
    "picture, precise": ("auto-precise", True, _LARGE, _SMALL),
    "picture, real time": ("auto-fast", True, _SMALL, None),
    "visual agent": ("agent", True, _LARGE, _SMALL),
    "visual coding": ("coding", True, _LARGE, None),
    "a text model and a picture": (_TEXT, True, _LARGE, _SMALL),
}


def _body(model: str, *, picture: bool) -> bytes:
    content: list[dict[str, Any]] = [{"type": "text", "text": "무엇인가요?"}]
    if picture:
        content.append({"type": "image_url", "image_url": {"url": _PIXEL}})
    asked = {"model": model, "max_tokens": 8, "messages": [{"role": "user", "content": content}]}
    return json.dumps(asked).encode()


async def test_each_row_of_the_table_goes_and_falls_back_as_it_says(serve: Serve, tmp_path: Path) -> None:
    down: set[str] = set()

    def script(name: str) -> Script:
        up, broken = json_reply({"from": name}), json_reply({"error": {"message": "x"}}, status=500)
        return lambda _: broken if name in down else up

    async with AsyncExitStack() as stack:
        text = _FILE.read_text(encoding="utf-8")
        servers = {}
        for name, address in _ADDRESSES.items():
            upstream = ScriptedUpstream(script(name), models=(name,))
            servers[name] = await stack.enter_async_context(upstream)
            assert address in text
            text = text.replace(address, upstream.url)
        (tmp_path / "fleet.yaml").write_text(text, encoding="utf-8")
        served = await stack.enter_async_context(serve("--config", str(tmp_path / "fleet.yaml")))
        for row, (model, picture, first, second) in _ROWS.items():
            answer = await served.ask("/v1/chat/completions", _body(model, picture=picture))
            assert answer.endswith(b'{"from":"%b"}' % first.encode()), row
            assert json.loads(servers[first].seen[-1].body)["model"] == first, row
            down.add(first)
            answer = await served.ask("/v1/chat/completions", _body(model, picture=picture))
            down.clear()
            if second is None:
                assert b" 500 " in answer[:20], row
            else:
                assert answer.endswith(b'{"from":"%b"}' % second.encode()), row
                assert json.loads(servers[second].seen[-1].body)["model"] == second, row
