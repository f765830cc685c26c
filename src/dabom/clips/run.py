"""One run: every open item is asked about through `/chat/batch` until it has a result that is stored."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from dabom.client import Item
from dabom.clips import retry
from dabom.clips.plan import stored_settings
from dabom.clips.read import Flight, Outcome, failed, read_outcome, timed
from dabom.clips.request import ask_about
from dabom.errors import AnswerBroken, AskError, ClientError, ConnectFailed, InvalidMedia, Refused

if TYPE_CHECKING:
    from dabom.client import Client, Line
    from dabom.clips.request import Asked
    from dabom.store import Run, RunItem, Runs

MakeControl: TypeAlias = Callable[[bytes, str], bytes]
"""The control of a kind, from the bytes of a clip."""
_MOST_FAULTS = 5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 20.0
_MOST_BUSY_ROUNDS = 3
"""So many rounds of refusals without one answer, and the run is interrupted: its items stay open."""


class _Changed(Exception):
    """A clip is not the file any more that the run began with."""


@dataclass(order=True)
class _Todo:
    """An item that waits for an attempt; the one that may go first is the least."""

    at: float
    position: int
    number: int = field(compare=False)
    seed: int = field(compare=False)
    max_tokens: int = field(compare=False)


class Runner:
    """Works through one run. `tick` is told of every stored attempt.

    At most `concurrency` items are under way. Whatever ends it, what is stored is whole: the same run can be
    worked on again, and goes on with the items that are open.
    """

    def __init__(
        self,
        client: Client,
        runs: Runs,
        run: Run,
        *,
        make_control: MakeControl | None = None,
        concurrency: int = 8,
        tick: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._runs = runs
        self._run = run
        self._folder = Path(run.place)
        self._settings = stored_settings(run.settings)
        self._make_control = make_control
        self._concurrency = concurrency
        self._tick = tick
        self._items: dict[int, RunItem] = {}
        self._waiting: list[_Todo] = []
        self._flying: dict[str, tuple[_Todo, Flight]] = {}
        self._news = asyncio.Event()
        self._stored = 0
        self._busy = 0
        self._writing = asyncio.Lock()
        self._writes = set[asyncio.Task[None]]()

    async def work(self) -> None:
        """Until no item is open. Raises AskError when the endpoint stays away or refuses the batch itself."""
        await self._load()
        faults = 0
        try:
            while self._waiting:
                stored = self._stored
                try:
                    await self._stream()
                except AskError as error:
                    faults = 1 if self._stored > stored else faults + 1
                    if not await self._survive(error) or faults > _MOST_FAULTS:
                        raise
                    await asyncio.sleep(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (faults - 1)))
        finally:
            await asyncio.gather(*self._writes)

    async def _load(self) -> None:
        items = await asyncio.to_thread(self._runs.items, self._run.id)
        tried = await asyncio.to_thread(self._runs.tried, self._run.id)
        for item in items:
            if item.state == "open":
                self._items[item.position] = item
                number = tried.get(item.position, 0)
                rule = retry.RULES.get(item.code) if number else None
                self._waiting.append(self._todo(item.position, number, self._settings.max_tokens, rule))
        heapq.heapify(self._waiting)

    def _todo(
        self, position: int, tried: int, max_tokens: int, rule: retry.Rule | None, wait_s: float = 0.0
    ) -> _Todo:
        seed = retry.next_seed(self._settings.seed, tried)
        at = time.monotonic() + wait_s if wait_s else 0.0
        return _Todo(at, position, tried + 1, seed, retry.next_max_tokens(max_tokens, rule))

    async def _stream(self) -> None:
        async with self._client.batch_stream(self._upload()) as lines:
            async for line in lines:
                if line.id in self._flying:
                    await self._take(line)
        if self._flying:
            raise AnswerBroken(f"the batch ended, and {len(self._flying)} items had no line")

    async def _take(self, line: Line) -> None:
        todo, flight = self._flying[line.id]
        came_at = time.time()
        outcome = await asyncio.to_thread(read_outcome, line, flight, self._settings.answer_schema)
        outcome = timed(outcome, came_at)
        await self._store(todo, outcome)
        del self._flying[line.id]
        self._news.set()
        self._busy = self._busy + 1 if retry.is_busy(outcome.attempt.code, outcome.attempt.status) else 0
        if self._gave_up:
            told = outcome.attempt.usage["error"]
            raise Refused(
                f"the last {self._busy} answers were refusals, the last one: {told}",
                status=line.status,
                code=outcome.attempt.code,
            )

    @property
    def _gave_up(self) -> bool:
        return self._busy >= _MOST_BUSY_ROUNDS * self._concurrency

    async def _store(self, todo: _Todo, outcome: Outcome) -> None:
        """Whoever is cancelled in this very moment: what has been answered is written."""
        write = asyncio.create_task(self._write(todo, outcome))
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        await asyncio.shield(write)

    async def _write(self, todo: _Todo, outcome: Outcome) -> None:
        async with self._writing:
            await asyncio.to_thread(self._runs.record, self._run.id, outcome.attempt, outcome.state)
        self._stored += 1
        if outcome.state == "open":
            wait_s = max(outcome.wait_s, 1e-9)
            again = self._todo(todo.position, todo.number, todo.max_tokens, outcome.rule, wait_s)
            heapq.heappush(self._waiting, again)
        self._tick(outcome)

    async def _survive(self, error: AskError) -> bool:
        """Put back what was under way; False when trying again makes no sense.

        Items whose line may have been lost have used up an attempt; those that nobody has seen have not.
        """
        unseen = isinstance(error, ConnectFailed | Refused)
        flown = list(self._flying.values())
        self._flying.clear()
        for todo, flight in flown:
            if unseen:
                heapq.heappush(self._waiting, todo)
            else:
                await self._store(todo, failed(flight, retry.CONNECTION, 0, error.message))
        if isinstance(error, Refused):
            return retry.is_busy(error.code, error.status) and not self._gave_up
        return True

    async def _upload(self) -> AsyncGenerator[Item, None]:
        async with aclosing(self._ready()) as ready:
            async for todo in ready:
                try:
                    asked, sha256 = await self._prepare(todo)
                except (ClientError, _Changed) as error:
                    code = retry.CHANGED if isinstance(error, _Changed) else retry.UNREADABLE
                    flight = Flight(todo.position, todo.number, time.time(), todo.seed, todo.max_tokens)
                    await self._store(todo, failed(flight, code, 0, str(error)))
                    continue
                except BaseException:
                    heapq.heappush(self._waiting, todo)  # cut off while it was read: nobody has seen it
                    raise
                flight = Flight(
                    position=todo.position,
                    number=todo.number,
                    started_at=time.time(),
                    seed=todo.seed,
                    max_tokens=todo.max_tokens,
                    sound=asked.sound,
                    predicted=asked.predicted,
                    notes=asked.notes,
                    request_bytes=asked.request.size,
                    sha256=sha256,
                )
                wire = f"{todo.position:04}.{todo.number} {self._items[todo.position].name[-80:]}"
                self._flying[wire] = (todo, flight)
                yield Item(wire, asked.request)

    async def _ready(self) -> AsyncGenerator[_Todo, None]:
        """Items in turn, each as soon as its time has come and there is room; ends when none is left."""
        while self._waiting or self._flying:
            self._news.clear()
            wait_s: float | None = None
            if self._waiting and len(self._flying) < self._concurrency:
                wait_s = self._waiting[0].at - time.monotonic()
                if wait_s <= 0:
                    yield heapq.heappop(self._waiting)
                    continue
            try:
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _prepare(self, todo: _Todo) -> tuple[Asked, str]:
        item = self._items[todo.position]
        content = await asyncio.to_thread(self._read, item)
        asked = await ask_about(content, self._settings, todo.seed, todo.max_tokens)
        return asked, hashlib.sha256(content).hexdigest() if item.control else item.sha256

    def _read(self, item: RunItem) -> bytes:
        path = self._folder / item.file
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InvalidMedia(f"{path}: cannot be read ({error.strerror})") from None
        if hashlib.sha256(content).hexdigest() != item.sha256:
            raise _Changed(f"{path}: is not the file any more that the run began with")
        if item.control and item.facts.get("made"):
            if self._make_control is None:
                raise InvalidMedia(f"{item.name}: nothing here makes controls")
            content = self._make_control(content, item.control)
        return content
