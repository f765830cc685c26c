"""vLLM on the CPU with tiny random models, and gateways in front of it. Run by script/conformance/run.sh."""

from __future__ import annotations

import base64
import contextlib
import json
import mimetypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import pytest
from tests.example_fleet import example_fleet

from dabom.testing import free_port, running, running_gateway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.example_fleet import ExampleFleet

SERVE = Path(__file__).parents[2] / "script" / "conformance" / "serve_vllm.sh"
START_WITHIN_S = 300  # 25 s on a quiet machine; the first start also fills caches
KEY = "sk-conformance"
VOLATILE = ("id", "created")

MLX, TEXT, LARGE, SMALL = "qwen3-14b-mlx", "qwen3-30b", "qwen3-vl-30b", "qwen3-vl-8b"
"""The models of the example fleet: the first and the third are served by the first of `Servers`."""
ROOM = (4096, 16_384)
"""Tokens that the two servers take."""


@dataclass(frozen=True)
class Answer:
    status: int
    kind: str
    body: bytes
    headers: Any

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return str(self.json["choices"][0]["message"]["content"])

    @property
    def events(self) -> list[Any]:
        """The JSON events of a stream."""
        lines = [
            event.removeprefix(b"data: ") for event in self.body.split(b"\n\n") if event.startswith(b"data: ")
        ]
        return [json.loads(line) for line in lines if line != b"[DONE]"]

    @property
    def same(self) -> Any:
        """Status, content type and body, without what differs from call to call."""
        if self.kind == "text/event-stream":
            body = [strip(event) for event in self.events]
            return self.status, self.kind, body, self.body.endswith(b"data: [DONE]\n\n")
        return self.status, self.kind, strip(json.loads(self.body))


def strip(obj: Any) -> Any:
    """Without ids and times, also those of tool calls."""
    if isinstance(obj, dict):
        return {key: strip(value) for key, value in obj.items() if key not in VOLATILE}
    return [strip(value) for value in obj] if isinstance(obj, list) else obj


@dataclass(frozen=True)
class Pair:
    """A server, and a gateway in front of it."""

    server: str
    gateway: str
    key: str | None = None

    async def post(self, root: str, body: Any, path: str = "/v1/chat/completions", **headers: str) -> Answer:
        """`body` is sent as it is when it is bytes. `headers` may replace the JSON content type."""
        octets = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        async with aiohttp.request("POST", root + path, data=octets, headers=sent) as answer:
            return Answer(answer.status, answer.content_type, await answer.read(), answer.headers)

    async def both(self, body: Any, **headers: str) -> Answer:
        """Ask the server and the gateway; the answers must be the same."""
        key = {"authorization": f"Bearer {self.key}"} if self.key else {}
        direct = await self.post(self.server, body, **key, **headers)
        relayed = await self.post(self.gateway, body, **headers)
        assert relayed.same == direct.same
        return relayed

    async def running(self) -> float:
        """How many requests vLLM works on."""
        return await told_by(self.server, "vllm:num_requests_running")


async def told_by(server: str, name: str) -> float:
    """A number of vLLM's own metrics, over all its series."""
    async with aiohttp.request("GET", f"{server}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{"))


@dataclass(frozen=True)
class Media:
    """Parts of a message from the files of script/conformance/media.py."""

    folder: Path

    def octets(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def image(self, source: str | bytes = "square.png", kind: str = "image/png") -> Any:
        return {"type": "image_url", "image_url": {"url": self._uri(source, kind)}}

    def clip(self, source: str | bytes = "silent.mp4") -> Any:
        return {"type": "video_url", "video_url": {"url": self._uri(source, "video/mp4")}}

    def sound(self, source: str | bytes = "tone.wav") -> Any:
        octets = self.octets(source) if isinstance(source, str) else source
        encoded = base64.b64encode(octets).decode()
        return {"type": "input_audio", "input_audio": {"data": encoded, "format": "wav"}}

    def part(self, name: str) -> Any:
        """What its name says that it is."""
        kind = (mimetypes.guess_type(name)[0] or "").partition("/")
        if kind[0] == "image":
            return self.image(name, "/".join(kind[::2]))
        return self.clip(name) if kind[0] == "video" else self.sound(name)

    def _uri(self, source: str | bytes, kind: str) -> str:
        octets = self.octets(source) if isinstance(source, str) else source
        return f"data:{kind};base64,{base64.b64encode(octets).decode()}"


@pytest.fixture(scope="session")
def home() -> Path:
    folder = os.environ.get("DABOM_VLLM")
    if folder is None:
        pytest.skip("needs vLLM: make conformance")
    return Path(folder)


@pytest.fixture(scope="session")
def media(home: Path) -> Media:
    return Media(home / "media")


@pytest.fixture(scope="session")
def serve(home: Path) -> Any:
    @contextlib.contextmanager
    def serve_model(model: str, *flags: str) -> Iterator[tuple[str, int]]:
        """A vLLM of its own; its root URL and process id."""
        folder, port = home / "models" / model, free_port()
        if not (folder / "done").exists():
            pytest.skip("needs Qwen's vocabulary: make conformance says why it is not there")
        command = ["bash", str(SERVE), str(folder), "tiny", str(port), *flags]
        server, env = f"http://127.0.0.1:{port}", {**os.environ, "DABOM_VLLM": str(home)}
        with running(command, f"{server}/health", env=env, within_s=START_WITHIN_S) as child:
            yield server, child.pid

    return serve_model


@pytest.fixture(scope="session")
def start(serve: Callable[..., Any]) -> Any:
    @contextlib.contextmanager
    def start_pair(
        model: str, *flags: str, key: str | None = None, **settings: str
    ) -> Iterator[tuple[Pair, int]]:
        """A vLLM of its own with a gateway; yields them and the server's process id."""
        flags += ("--api-key", key) if key else ()
        settings |= {"VLLM_API_KEY": key} if key else {}
        with (
            serve(model, *flags) as (server, pid),
            running_gateway(f"{server}/v1", **settings) as gateway,
        ):
            yield Pair(server, gateway, key), pid

    return start_pair


@pytest.fixture(scope="session")
def vl(start: Callable[..., Any]) -> Iterator[Pair]:
    """Qwen3-VL: text, pictures, clips."""
    with start("qwen3_vl", "--limit-mm-per-prompt", '{"image":4,"video":1}') as (pair, _):
        yield pair


@pytest.fixture(scope="session")
def omni(start: Callable[..., Any]) -> Iterator[Pair]:
    """Qwen3-Omni, behind a key: sound too. Its media cache is off: with it a clip can lose its sound."""
    limits = '{"image":4,"video":1,"audio":2}'
    flags = ("--limit-mm-per-prompt", limits, "--mm-processor-cache-gb", "0")
    with start("qwen3_omni", *flags, key=KEY) as (pair, _):
        yield pair


class Servers(NamedTuple):
    """The root URLs of two vLLMs that count as the released models do, and which take less and more."""

    hearing: str
    seeing: str

    def upstreams(self) -> dict[str, dict[str, Any]]:
        """Those of the example fleet. What each takes is left to be learned."""
        first = {"url": f"{self.hearing}/v1", "kind": "vllm", "max_model_len": None}
        second = {"url": f"{self.seeing}/v1", "kind": "vllm", "max_model_len": None}
        hears = {"family": "qwen3-omni", "modalities": ["image", "video", "audio"]}
        return {
            MLX: first,
            TEXT: second,
            LARGE: {**first, **hears, "trusts_media_options": True},
            SMALL: {**second, "trusts_media_options": False},
        }


@pytest.fixture(scope="session")
def serve_hearing(serve: Callable[..., Any]) -> Callable[[], Any]:
    """Starts the first of the two; its media cache is off as above."""
    flags = ["--served-model-name", MLX, LARGE, "--max-model-len", str(ROOM[0])]
    flags += ["--mm-processor-cache-gb", "0", "--limit-mm-per-prompt", '{"image":4,"video":1,"audio":2}']
    return lambda: serve("exact-qwen3-omni", *flags)


@pytest.fixture(scope="session")
def servers(serve: Callable[..., Any], serve_hearing: Callable[[], Any]) -> Iterator[Servers]:
    """The second takes no options of media from a request."""
    flags = ["--served-model-name", TEXT, SMALL, "--no-trust-request-mm-kwargs"]
    flags += ["--max-model-len", str(ROOM[1]), "--max-num-batched-tokens", str(ROOM[1])]
    flags += ["--limit-mm-per-prompt", '{"image":4,"video":1}']
    with serve_hearing() as (hearing, _), serve("exact-qwen3-vl", *flags) as (seeing, _):
        yield Servers(hearing, seeing)


@pytest.fixture(scope="session")
def fleet_of(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`with fleet_of(media=...)`: the example fleet on these servers, with further settings."""
    return lambda **more: example_fleet(tmp_path_factory.mktemp("fleet"), servers.upstreams(), **more)


@pytest.fixture(scope="session")
def fleet(fleet_of: Callable[..., Any]) -> Iterator[ExampleFleet]:
    with fleet_of(models={"either": [[LARGE, SMALL]]}, mask=["resident_number"]) as running_fleet:
        yield running_fleet


@pytest.fixture(scope="session")
def exact_media(home: Path) -> Media:
    """Those whose tokens are counted."""
    return Media(home / "media" / "tokens")


@pytest.fixture(scope="session")
def request_of() -> Callable[..., Any]:
    def build(content: Any, **more: Any) -> Any:
        """A request at temperature 0. `content` is a text, or a list of parts and texts."""
        if isinstance(content, list):
            content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
        fixed = {"model": "tiny", "temperature": 0, "max_tokens": 16}
        return {**fixed, "messages": [{"role": "user", "content": content}], **more}

    return build
