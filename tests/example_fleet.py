"""deploy/examples/seed-fleet.yaml as a running gateway in front of other servers, and what it tells."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import yaml

from dabom.store import open_audit, verify
from dabom.testing import free_port, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE = Path(__file__).parents[1] / "deploy" / "examples" / "seed-fleet.yaml"
KEY, KEY_ID = "dabom-of-the-tests-of-the-example-fleet", "anna"
_OURS = ("VLLM_", "DABOM_", "MAX_BATCH_")
_START_WITHIN_S = 40
_WRITTEN_WITHIN_S = 5


@dataclass(frozen=True)
class Answer:
    """What came back, with the gateway's own headers."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def text(self) -> str:
        return str(self.json["choices"][0]["message"]["content"])

    @property
    def usage(self) -> Any:
        return self.json["usage"]

    @property
    def events(self) -> list[Any]:
        """The JSON events of a stream."""
        found = re.findall(rb"^data: (\{.*)$", self.body, re.MULTILINE)
        return [json.loads(event) for event in found]

    @property
    def spoken(self) -> str:
        """The text of a stream."""
        pieces = [choice["delta"].get("content") for event in self.events for choice in event["choices"]]
        return "".join(piece or "" for piece in pieces)

    @property
    def lines(self) -> list[Any]:
        """The lines of a batch."""
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def hops(self) -> list[str]:
        """`X-Dabom-Route`: the route, then each target that was asked."""
        return self.headers["X-Dabom-Route"].split(", ")

    @property
    def request_id(self) -> str:
        return self.headers["X-Request-Id"]


@dataclass(frozen=True)
class ExampleFleet:
    """The gateway: its root URL, and the folder with its log and its audit."""

    root: str
    folder: Path

    async def post(self, body: Any, path: str = "/v1/chat/completions", **headers: str) -> Answer:
        sent = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        octets = io.BytesIO(json.dumps(body).encode())
        async with aiohttp.request("POST", self.root + path, data=octets, headers=sent) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def line(self, answer: Answer, item: int | None = None) -> Any:
        """The line of a request in the log, or of an item of a batch."""
        wanted = answer.request_id if item is None else f"{answer.request_id}-{item}"
        async with asyncio.timeout(_WRITTEN_WITHIN_S):
            while True:
                for line in (self.folder / "log").read_bytes().splitlines(keepends=True):
                    if line.endswith(b"\n") and json.loads(line)["request_id"] == wanted:
                        return json.loads(line)
                await asyncio.sleep(0.02)

    async def record(self, answer: Answer) -> Any:
        """The record of a request in the audit."""
        return await self.record_of(answer.request_id)

    async def record_of(self, request_id: str) -> Any:
        """The record of a request or of an item, out of a chain that is whole."""
        database = str(self.folder / "audit.db")
        async with asyncio.timeout(_WRITTEN_WITHIN_S):
            while True:
                with contextlib.closing(open_audit(database, read_only=True)) as chain:
                    assert verify(chain).faults == ()
                    rows = [json.loads(row.record) for row in chain.rows(1)]
                found = [row for row in rows if row.get("request_id") == request_id]
                if found:
                    return found[0]
                await asyncio.sleep(0.05)

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of the series with these labels; 0 when there is none."""
        headers = {"authorization": f"Bearer {KEY}"}
        async with aiohttp.request("GET", f"{self.root}/metrics", headers=headers) as answer:
            lines = (await answer.text()).splitlines()
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        series = [line for line in lines if re.match(rf"{name}[ {{]", line)]
        told = [line for line in series if wanted <= set(re.findall(r'\w+="[^"]*"', line))]
        return sum(float(line.split()[-1]) for line in told)


@contextlib.contextmanager
def example_fleet(
    folder: Path, upstreams: Mapping[str, Mapping[str, Any]], **more: Any
) -> Iterator[ExampleFleet]:
    """The example with other values for its upstreams, by name, and further settings.

    None takes a value of an upstream away; tables are added to those of the file. A key, the audit and the
    log are on.
    """
    settings = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    named = {one["name"]: one for one in settings["upstreams"]}
    assert named.keys() >= upstreams.keys()
    for name, changed in upstreams.items():
        merged = named[name] | changed
        named[name].clear()
        named[name].update({key: value for key, value in merged.items() if value is not None})
    settings["keys"] = [{"id": KEY_ID, "hash": f"sha256:{hashlib.sha256(KEY.encode()).hexdigest()}"}]
    settings["audit"] = {"database": str(folder / "audit.db")}
    settings["log_file"] = str(folder / "log")
    file = folder / "fleet.yaml"
    for name, value in more.items():
        settings[name] = {**settings.get(name, {}), **value} if isinstance(value, dict) else value
    file.write_text(yaml.safe_dump(settings, allow_unicode=True), encoding="utf-8")
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "dabom.cli", "serve", "--config", str(file), "--port", str(port)]
    env = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    with running(command, f"{root}/healthz", env=env, within_s=_START_WITHIN_S):
        yield ExampleFleet(root, folder)
