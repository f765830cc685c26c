"""The order in which the items of one batch are asked, and the way of their lines to the client."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from dabom.errors import BatchTooLarge, ClientGone, DabomError
from dabom.gateway.lines import Lines, failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from dabom.gateway.admission import Claim
    from dabom.gateway.ask import Asked, Asker
    from dabom.gateway.exchange import Exchange
    from dabom.gateway.guard import Guard
    from dabom.gateway.items import Item
    from dabom.gateway.lines import Budget
    from dabom.gateway.upstream import Upstream

_MAX_WAITING_BYTES = 512 * 2**20
_MAX_FETCHED = 8
"""Items that hold fetched files at a time: a line of a few bytes may stand for 64 MiB."""


class Dispatch:
    """One batch at work. Each target has a lane; its next item enters the queue when the last has a permit.

    So no item times out behind its own siblings, and a batch takes one place in the queue like anyone else.
    """

    def __init__(self, asker: Asker, exchange: Exchange, guard: Guard, budget: Budget) -> None:
        self.lines = Lines()
        self.budget = budget
        self.pending: dict[int, bytes] = {}
        """Number and id of the items that have no line yet."""
        self._asker = asker
        self._exchange = exchange
        self._guard = guard
        self._lanes: dict[str, asyncio.Queue[Asked | None]] = {}
        self._asking: asyncio.TaskGroup
        self._scalings = asyncio.Semaphore(asker.scalings)
        """So that the pictures of others, who may be in more of a hurry, get in between."""
        self._fetches = asyncio.Semaphore(_MAX_FETCHED)
        self._fetched: set[int] = set()
        """Numbers of the items for which outside URLs were fetched."""
        self._running = 0
        """Items that have been taken up and have no line."""
        self._fed = False
        exchange.remains = self._remains

    async def run(self, items: AsyncIterator[Item]) -> None:
        """Ask all items and send all lines."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._feed(items))
                await self._send_lines()
        finally:
            self._clear_lanes()

    async def _send_lines(self) -> None:
        seconds = self._asker.clocks.idle_timeout_s
        async for text in self.lines.pieces():
            if not self._exchange.uploading:
                self._guard.limit_silence(
                    seconds, lambda: ClientGone(f"the client took no line for {seconds:g} s")
                )
            await self._exchange.write(text)
            self._guard.unlimit()

    async def _feed(self, items: AsyncIterator[Item]) -> None:
        try:
            async with asyncio.TaskGroup() as self._asking:
                async for item in items:
                    self._running += 1
                    await self._line_up(item)
                    if item.flaw is None:  # a list is there at once, and each of its items is weighed
                        await asyncio.sleep(0)
                self._fed = True
                self._end_lanes()
            self.lines.close()
        except DabomError as error:
            self._guard.interrupt(error)
        except ExceptionGroup as errors:
            known, other = errors.split(DabomError)
            if other is not None or known is None:
                raise
            self._guard.interrupt(_first(known))

    async def _line_up(self, item: Item) -> None:
        if item.flaw is not None:
            self._refuse(item, item.flaw)
            return
        wait_s = self._exchange.key.reserve()
        try:
            if wait_s:  # a batch takes the pace that its key may have
                await asyncio.sleep(wait_s)
            asked = await self._asker.begin(item, self._exchange)
        except BaseException as error:
            self._exchange.key.release()
            if not isinstance(error, DabomError):
                raise
            self._refuse(item, error)
            return
        self._join(asked)

    def _join(self, asked: Asked) -> None:
        """Take a place in the lane of the target that it is the turn of."""
        if asked.item.facts.media:
            self._start(self._look_and_join, asked)
            return
        try:
            self._asker.weigh(asked, self._exchange)
        except DabomError as error:
            self._go_on(asked, error)
        else:
            self._enter(asked)

    async def _look_and_join(self, asked: Asked) -> None:
        item = asked.item
        if item.number not in self._fetched and any(medium.remote for medium in item.facts.media):
            await self._fetches.acquire()
            self._fetched.add(item.number)
        try:
            await self._asker.look(asked)
            async with self._scalings:
                await self._asker.fit(asked, self._exchange)
        except DabomError as error:
            self._go_on(asked, error)
        else:
            self._enter(asked)

    def _enter(self, asked: Asked) -> None:
        target = asked.way.target
        target.expect(asked.claim.tokens)
        if target.name not in self._lanes:
            lane = self._lanes[target.name] = asyncio.Queue()
            self._asking.create_task(self._run_lane(lane, target))
        self._lanes[target.name].put_nowait(asked)

    def _go_on(self, asked: Asked, error: DabomError) -> None:
        if asked.way.goes_on_after(error):
            self._start(self._join_again, asked)
        else:
            self._finish(asked.item, self._asker.refuse(asked.item, error, self._exchange, asked))

    def _start(self, way: Callable[[Asked], Coroutine[None, None, None]], asked: Asked) -> None:
        """Go on in a task of its own; in a batch that is being cut nothing goes on.

        A task whose own clock rings in that moment learns of its clock first.
        """
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        self._asking.create_task(way(asked))

    async def _join_again(self, asked: Asked) -> None:
        """In a task of its own: as long as it waits, the batch is not over, and it ends with the batch."""
        await asyncio.sleep(asked.way.pause_s)
        self._join(asked)

    async def _run_lane(self, lane: asyncio.Queue[Asked | None], target: Upstream) -> None:
        loop = asyncio.get_running_loop()
        while (asked := await lane.get()) is not None:
            began = loop.time()
            try:
                await target.permits.acquire(target.clocks.acquire_timeout_s, asked.claim)
            except DabomError as error:
                target.expect(-asked.claim.tokens, -1)
                self._go_on(asked, error)
                continue
            except BaseException:
                target.expect(-asked.claim.tokens, -1)
                self._exchange.key.release()
                raise
            asked.record.queue_ms += round((loop.time() - began) * 1000, 2)
            if asked.way.passes_over(loop.time()):
                _give_back(target, asked.claim, None)
                self._start(self._join_again, asked)
                continue
            task = self._asking.create_task(self._ask(asked))
            # not in the task: one that is cancelled before its first step would keep the permit
            task.add_done_callback(partial(_give_back, target, asked.claim))

    async def _ask(self, asked: Asked) -> None:
        line = await self._asker.ask(asked, self._exchange)
        if line is not None:
            self._finish(asked.item, line)
        else:
            self._start(self._join_again, asked)

    def _refuse(self, item: Item, error: DabomError) -> None:
        self._finish(item, self._asker.refuse(item, error, self._exchange))

    def _finish(self, item: Item, line: bytes) -> None:
        self.pending.pop(item.number, None)
        self.budget.give(item.size)
        if item.number in self._fetched:
            self._fetched.remove(item.number)
            self._fetches.release()
        self.lines.put(line)
        self._running -= 1
        self._end_lanes()
        if self.lines.size > _MAX_WAITING_BYTES:
            self._guard.interrupt(BatchTooLarge("the client does not take its lines"))

    def _end_lanes(self) -> None:
        """When the last item has its line, nothing can come into any lane."""
        if self._fed and not self._running:
            for lane in self._lanes.values():
                lane.put_nowait(None)

    def _clear_lanes(self) -> None:
        """What still waits when a batch is cut is not on its way any more."""
        for lane in self._lanes.values():
            while not lane.empty():
                if (asked := lane.get_nowait()) is not None:
                    asked.way.target.expect(-asked.claim.tokens, -1)
                    self._exchange.key.release()

    def _remains(self, error: DabomError) -> bytes:
        """What is still to be said when the batch is cut: finished lines, then one per unfinished item."""
        rest = b"".join(failed(ident, error) for ident in self.pending.values())
        self.pending.clear()
        return self.lines.take() + rest


def _give_back(target: Upstream, claim: Claim, _: object) -> None:
    target.permits.release(claim)
    target.expect(-claim.tokens, -1)


def _first(errors: BaseExceptionGroup[DabomError]) -> DabomError:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
