"""The order in which the items of one batch are asked, and the way of their lines to the client."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from dabom.errors import BatchTooLarge, ClientGone, DabomError
from dabom.gateway.admission import claim_of, weigh
from dabom.gateway.lines import Lines, failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dabom.gateway.admission import Claim
    from dabom.gateway.ask import Asker
    from dabom.gateway.exchange import Exchange
    from dabom.gateway.guard import Guard
    from dabom.gateway.items import Item
    from dabom.gateway.lines import Budget
    from dabom.gateway.upstream import Upstream

PATH = "/chat/completions"
_MAX_WAITING_BYTES = 512 * 2**20


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
        self._lanes: dict[str, asyncio.Queue[Item | None]] = {}
        exchange.remains = self._remains

    async def run(self, items: AsyncIterator[Item]) -> None:
        """Ask all items and send all lines."""
        seconds = self._asker.clocks.idle_timeout_s
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed(items))
            async for text in self.lines.pieces():
                if not self._exchange.uploading:
                    self._guard.limit_silence(
                        seconds, lambda: ClientGone(f"the client took no line for {seconds:g} s")
                    )
                await self._exchange.write(text)
                self._guard.unlimit()

    async def _feed(self, items: AsyncIterator[Item]) -> None:
        try:
            async with asyncio.TaskGroup() as asking:
                async for item in items:
                    await self._line_up(item, asking)
                for lane in self._lanes.values():
                    lane.put_nowait(None)
            self.lines.close()
        except DabomError as error:
            self._guard.interrupt(error)
        except ExceptionGroup as errors:
            known, other = errors.split(DabomError)
            if other is not None or known is None:
                raise
            self._guard.interrupt(_first(known))

    async def _line_up(self, item: Item, asking: asyncio.TaskGroup) -> None:
        if item.flaw is not None:
            self._refuse(item, item.flaw)
            return
        try:
            target = await self._asker.choose(item)
        except DabomError as error:
            self._refuse(item, error)
            return
        if target.name not in self._lanes:
            lane = self._lanes[target.name] = asyncio.Queue()
            asking.create_task(self._run_lane(lane, target, asking))
        self._lanes[target.name].put_nowait(item)

    async def _run_lane(
        self, lane: asyncio.Queue[Item | None], target: Upstream, asking: asyncio.TaskGroup
    ) -> None:
        loop = asyncio.get_running_loop()
        while (item := await lane.get()) is not None:
            asked = loop.time()
            try:
                item.cost = weigh(target.meter, item.facts, (item.body,), PATH)
                claim = claim_of(item.cost, self._exchange, item=True)
                await target.permits.acquire(self._asker.clocks.acquire_timeout_s, claim)
            except DabomError as error:
                self._refuse(item, error)
                continue
            task = asking.create_task(self._ask(item, target, (loop.time() - asked) * 1000))
            # not in the task: one that is cancelled before its first step would keep the permit
            task.add_done_callback(partial(_give_back, target, claim))

    async def _ask(self, item: Item, target: Upstream, queue_ms: float) -> None:
        self._finish(item, await self._asker.ask(item, target, self._exchange, round(queue_ms, 2)))

    def _refuse(self, item: Item, error: DabomError) -> None:
        self._finish(item, self._asker.refuse(item, error, self._exchange))

    def _finish(self, item: Item, line: bytes) -> None:
        self.pending.pop(item.number, None)
        self.budget.give(item.size)
        self.lines.put(line)
        if self.lines.size > _MAX_WAITING_BYTES:
            self._guard.interrupt(BatchTooLarge("the client does not take its lines"))

    def _remains(self, error: DabomError) -> bytes:
        """What is still to be said when the batch is cut: finished lines, then one per unfinished item."""
        rest = b"".join(failed(ident, error) for ident in self.pending.values())
        self.pending.clear()
        return self.lines.take() + rest


def _give_back(target: Upstream, claim: Claim, _: object) -> None:
    target.permits.release(claim)


def _first(errors: BaseExceptionGroup[DabomError]) -> DabomError:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
