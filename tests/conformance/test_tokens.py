"""What `dabom.families` predicts, against what vLLM counts, with the released vocabulary and limits.

With DABOM_RECORD=FILE the facts and what the server said are written there: tests/families/measured.json is
such a file.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import mimetypes
import os
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from script.conformance.token_cases import Case, cases

from dabom.families import FAMILIES, Cost, read_options
from dabom.media.counted import Counted, count
from dabom.testing import free_port, running

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.conformance

_FLAGS = ("--max-model-len", "32768", "--max-num-batched-tokens", "32768", "--max-num-seqs", "4")
_SERVE = Path(__file__).parents[2] / "script" / "conformance" / "serve_vllm.sh"
_START_WITHIN_S = 300
_LIMITS = {"image": 4, "video": 2}
_CASES = cases()


@dataclass
class _Servers:
    """One vLLM at a time: that of the family that is asked for."""

    home: Path
    family: str = ""
    address: str = ""
    bare: int = 0
    running: ExitStack = field(default_factory=ExitStack)

    def of(self, family: str) -> None:
        """Have that family's server run; `bare` is then its prompt without media."""
        if family == self.family:
            return
        model, port = self.home / "models" / f"exact-{family}", free_port()
        if not (model / "done").exists():
            pytest.skip("needs Qwen's vocabulary: make conformance says why it is not there")
        self.running.close()
        limits = {**_LIMITS, "audio": 2} if family == "qwen3-omni" else _LIMITS
        flags = (*_FLAGS, "--limit-mm-per-prompt", json.dumps(limits))
        self.address = f"http://127.0.0.1:{port}"
        env = {**os.environ, "DABOM_VLLM": str(self.home)}
        command = ["bash", str(_SERVE), str(model), "tiny", str(port), *flags]
        self.running.enter_context(
            running(command, f"{self.address}/health", env=env, within_s=_START_WITHIN_S)
        )
        self.family = family
        _, said = asyncio.run(ask(self.address, [], {}, {}))
        self.bare = int(said["usage"]["prompt_tokens"])


@pytest.fixture(scope="module")
def servers(home: Path) -> Iterator[_Servers]:
    found = _Servers(home)
    with found.running:
        yield found


@pytest.fixture(scope="session")
def measured() -> Iterator[list[Any]]:
    lines: list[Any] = []
    yield lines
    if path := os.environ.get("DABOM_RECORD"):
        written = ",\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
        Path(path).write_text(f"[\n{written}\n]\n", encoding="utf-8")


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in _CASES])
def test_the_server_counts_what_was_predicted(
    servers: _Servers, case: Case, home: Path, measured: list[Any]
) -> None:
    servers.of(case.family)
    found = [count((home / "media" / "tokens" / name).read_bytes()) for name in case.files]
    parts = [_part(home, name) for name in case.files]
    status, answer = asyncio.run(ask(servers.address, parts, case.processor, case.loader))
    said: dict[str, Any] = {"status": status}
    if status == 200:
        usage = answer["usage"]
        said["tokens"] = {
            kind: number
            for kind, number in usage["prompt_tokens_details"]["multimodal_tokens"].items()
            if number
        }
        said["prompt_tokens"] = usage["prompt_tokens"] - servers.bare
    facts = [_facts(one) for one in found]
    asked = {"family": case.family, "items": facts, "processor": case.processor, "loader": case.loader}
    measured.append({"case": case.id, **asked, **said})
    assert _predicted([_cost(one, case) for one in found]) == said, answer


def test_enough_is_compared() -> None:
    counted = Counter(case.family for case in _CASES)
    assert len(counted) == 3
    assert min(counted.values()) >= 50
    assert sum(counted.values()) >= 150


async def ask(server: str, parts: list[Any], processor: Any, loader: Any) -> tuple[int, Any]:
    body: dict[str, Any] = {
        "model": "tiny",
        "max_tokens": 1,
        "temperature": 0,
        "messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "What is this?"}]}],
    }
    body |= {"mm_processor_kwargs": processor} if processor else {}
    body |= {"media_io_kwargs": loader} if loader else {}
    sent = io.BytesIO(json.dumps(body).encode())
    headers = {"content-type": "application/json"}
    async with aiohttp.request("POST", f"{server}/v1/chat/completions", data=sent, headers=headers) as answer:
        return answer.status, await answer.json()


def _part(home: Path, name: str) -> Any:
    encoded = base64.b64encode((home / "media" / "tokens" / name).read_bytes()).decode()
    kind = (mimetypes.guess_type(name)[0] or "video/x-matroska").partition("/")
    if kind[0] == "audio":
        return {"type": "input_audio", "input_audio": {"data": encoded, "format": name.rpartition(".")[2]}}
    word = f"{kind[0]}_url"
    return {"type": word, word: {"url": f"data:{kind[0]}/{kind[2]};base64,{encoded}"}}


def _cost(found: Counted, case: Case) -> Cost:
    family, options = FAMILIES[case.family], read_options(case.processor, case.loader)
    if found.clip is not None:
        return family.video(found.clip, options)
    if found.kind == "audio":
        return family.audio(found.audio_samples, found.audio_rate)
    return family.image(found.width, found.height, options)


def _predicted(costs: list[Cost]) -> dict[str, Any]:
    refusal = next((cost.refusal for cost in costs if cost.refusal is not None), None)
    if refusal is not None:
        return {"status": refusal.status}
    tokens: Counter[str] = Counter()
    for cost in costs:
        tokens.update(cost.tokens)
    return {"status": 200, "tokens": dict(tokens), "prompt_tokens": sum(cost.prompt_tokens for cost in costs)}


def _facts(found: Counted) -> dict[str, Any]:
    if found.clip is None:
        keys = ("audio_samples", "audio_rate") if found.kind == "audio" else ("width", "height")
        return {"kind": found.kind, **{key: getattr(found, key) for key in keys}}
    clip = {key: getattr(found.clip, key) for key in found.clip.__slots__}
    if clip["decodable"] == clip["frames"]:
        del clip["decodable"]
    return {"kind": "video", **{key: value for key, value in clip.items() if value}}
