"""The six steps against any gateway: health, text, clip, black clip, batch, results."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from dabom.app.demo.judge import judge, shorten
from dabom.app.demo.records import Call, Report, Row, write_calls, write_summary
from dabom.app.demo.throughput import compare, summary_of
from dabom.app.demo.words import Language, say
from dabom.client import Answer, Client, ClipOptions, Item, Request, clip_request, request, user
from dabom.errors import AskError, DabomError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from dabom.app.demo.samples import Samples

TEXT_PROMPT = "한국어로 자기소개를 한 문장으로 해줘."


def _no_tick(_step: str) -> None:
    return None


@dataclass
class Check:
    """One run of the check. `tick` is told the step after each call; `calls_total` are expected."""

    client: Client
    samples: Samples
    out: Path
    language: Language = "ko"
    tick: Callable[[str], None] = _no_tick
    _calls: list[Call] = field(default_factory=list, init=False)
    _batch: dict[str, Any] = field(default_factory=dict, init=False)
    _model: str | None = field(default=None, init=False)

    @property
    def calls_total(self) -> int:
        """How many calls a whole run makes."""
        return 4 + 2 * len(self.samples.clips)

    async def run(self) -> Report:
        """All steps; a step that fails makes its row fail, and the others go on."""
        rows = [
            await self._guard("health", "GET /healthz", self._health),
            await self._guard("text", "POST /chat", self._text),
            await self._guard("clip", "POST /chat", self._clip),
            await self._guard("black", "POST /chat", self._black),
            await self._guard("batch", "POST /chat/batch", self._batches),
        ]
        saved, told = await asyncio.to_thread(self._save)
        rows.append(Row(self._say("saved"), "-", self._say("saved_checks"), told, saved))
        report = Report(self.client.root, rows, self._batch, len(self._calls), str(self.out))
        if saved:
            await asyncio.to_thread(write_summary, self.out, report)
        return report

    def _say(self, key: str, **values: object) -> str:
        return say(self.language, key, **values)

    async def _guard(self, key: str, route: str, step: Callable[[], Awaitable[tuple[bool, str]]]) -> Row:
        try:
            passed, result = await step()
        except DabomError as error:
            passed, result = False, self._say("failed", code=error.code, message=shorten(error.message, 200))
        return Row(self._say(key), route, self._say(f"{key}_checks"), result, passed)

    async def _ask(self, step: str, asked: Request, id_: str) -> Answer:
        """One `/chat` call, recorded whether it works or not."""
        start = time.monotonic()
        try:
            answer = await self.client.ask(asked, path="/chat")
        except AskError as error:
            told = f"{error.code}: {error.message}"
            self._record(Call(step, id_, error.status, 0, asked.size, 0, error.request_id, error=told), start)
            raise
        size = len(answer.raw)
        self._record(Call(step, id_, 200, 0, asked.size, size, answer.request_id, answer.text), start)
        return answer

    def _record(self, call: Call, start: float) -> None:
        elapsed_ms = round((time.monotonic() - start) * 1000)
        self._calls.append(msgspec.structs.replace(call, elapsed_ms=elapsed_ms))
        self.tick(call.step)

    async def _health(self) -> tuple[bool, str]:
        start = time.monotonic()
        health = await self.client.health()
        self._record(Call("health", health.path, health.status, 0, request_id=health.request_id), start)
        if not health.ok:
            return False, self._say("health_bad", status=health.status)
        if health.request_id is None:
            return False, self._say("health_no_id")
        return True, self._say("health_ok", id=shorten(health.request_id, 36))

    async def _text(self) -> tuple[bool, str]:
        models = await self.client.models()
        self._model = models[0].id if models else None
        answer = await self._ask(
            "text", request(user(TEXT_PROMPT), model=self._model, max_tokens=256), "text"
        )
        if not answer.text.strip():
            return False, self._say("empty")
        used = answer.usage
        return True, self._say(
            "text_ok",
            model=answer.model or self._model,
            prompt=used.prompt_tokens if used else "?",
            completion=used.completion_tokens if used else "?",
        )

    async def _clip(self) -> tuple[bool, str]:
        clip = self.samples.first
        finding = judge(await self._ask("clip", await self._request(clip), clip.stem))
        text = shorten(finding.text)
        if not finding.strict:
            return False, self._say("not_strict", text=text)
        return finding.korean, self._say("clip_ok" if finding.korean else "not_korean", text=text)

    async def _black(self) -> tuple[bool, str]:
        clip = self.samples.black
        if clip is None:
            return False, self._say("black_missing")
        answer = await self._ask("black", await self._request(clip), clip.stem)
        finding = judge(answer)
        if not finding.black:
            return False, self._say("black_unseen", text=shorten(finding.text))
        key = "black_ok" if finding.speech else "black_unheard"
        return finding.speech, self._say(key, text=shorten(finding.speech_text))

    async def _batches(self) -> tuple[bool, str]:
        items = [Item(clip.stem, await self._request(clip)) for clip in self.samples.clips]
        found = await compare(self.client, items, self.tick)
        self._calls += found.calls
        ids = [item.id for item in items]
        self._batch = summary_of(found, ids)
        if found.fault:
            return False, shorten(found.fault, 200)
        places = " ".join(str(ids.index(id_) + 1) for id_ in found.arrival if id_ in ids)
        same = found.arrival == ids
        times = self._say("times", sequential=found.sequential_ms, batch=found.batch_ms, ratio=found.ratio)
        return found.whole(ids), self._say(
            "batch_ok",
            ok=found.batch_ok,
            count=found.count,
            total=found.total,
            times=times,
            order=self._say("order_same" if same else "order_differs", arrival=places),
        )

    async def _request(self, clip: Path) -> Request:
        return await clip_request(clip, ClipOptions(model=self._model))

    def _save(self) -> tuple[bool, str]:
        try:
            path = write_calls(self.out, self._calls)
        except OSError as error:
            return False, self._say("saved_bad", path=self.out, reason=error.strerror)
        return True, self._say("saved_ok", count=len(self._calls), path=path)
