"""One item of a batch, asked of one upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dabom.errors import DabomError, FirstByteTimeout, IdleTimeout, UpstreamBroken
from dabom.gateway.guard import Guard
from dabom.gateway.lines import answered, failed
from dabom.gateway.relay import upstream_headers
from dabom.gateway.usage import TAIL_BYTES, note_usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dabom.gateway.account import Accounts, Record
    from dabom.gateway.exchange import Exchange
    from dabom.gateway.fleet import Fleet
    from dabom.gateway.items import Item
    from dabom.gateway.settings import Clocks, GatewaySettings
    from dabom.gateway.upstream import Upstream
    from dabom.gateway.wire import Answer

PATH = "/chat/batch item"
_PIECE_BYTES = 256 * 1024


class Asker:
    """Sends items and makes their lines."""

    def __init__(self, settings: GatewaySettings, fleet: Fleet, accounts: Accounts) -> None:
        self.clocks: Clocks = settings.clocks
        self._limits = settings.limits
        self._forward = settings.forward_authorization
        self._fleet = fleet
        self._accounts = accounts

    async def choose(self, item: Item) -> Upstream:
        """The target of an item."""
        return await self._fleet.choose(item.facts.model)

    async def ask(self, item: Item, target: Upstream, exchange: Exchange, queue_ms: float) -> bytes:
        """The line of one item, for which a permit is held. Only cancellation is raised."""
        record = self._accounts.open(f"{exchange.record.request_id}-{item.number}", PATH)
        record.note(item.facts)
        record.upstream, record.queue_ms = target.name, queue_ms
        record.predicted_tokens = item.cost.predicted if item.cost else None
        try:
            async with Guard() as guard:
                answer = await self._send(item, target, exchange, guard)
                record.first_byte_ms = guard.elapsed_ms()
                text = await self._whole(guard, target, answer)
                record.status, record.bytes_out = answer.status, len(text)
                note_usage(record, text[-TAIL_BYTES:])
                if exchange.masking is not None:
                    text = exchange.masking.item(text)
                return answered(item, answer.status, round(guard.elapsed_ms()), text)
        except DabomError as error:
            record.status, record.code = error.status, error.code
            return failed(item.id, error)
        finally:
            self._close(record)

    def refuse(self, item: Item, error: DabomError, exchange: Exchange) -> bytes:
        """The line of an item that reaches no upstream."""
        record = self._accounts.open(f"{exchange.record.request_id}-{item.number}", PATH)
        record.note(item.facts)
        record.status, record.code = error.status, error.code
        self._close(record)
        return failed(item.id, error)

    def _close(self, record: Record) -> None:
        self._accounts.metrics.items.add(str(record.status))
        self._accounts.close(record, PATH)

    async def _send(self, item: Item, target: Upstream, exchange: Exchange, guard: Guard) -> Answer:
        first_s = self.clocks.first_byte_s(stream=False, media=bool(item.facts.media))
        guard.limit_total(self.clocks.total_timeout_s)
        guard.limit_silence(
            first_s, lambda: FirstByteTimeout(f"the upstream sent no first byte in {first_s:g} s")
        )
        own = {
            b"content-type": b"application/json",
            b"x-request-id": f"{exchange.record.request_id}-{item.number}".encode(),
        }
        headers = upstream_headers(exchange, target, len(item.body), forward=self._forward)
        headers = [(name, own.get(name, value)) for name, value in headers]
        return await target.send("POST", "/chat/completions", headers, _slices(item.body))

    async def _whole(self, guard: Guard, target: Upstream, answer: Answer) -> bytes:
        """The body of an answer; an error's is cut at its limit."""
        idle_s = self.clocks.idle_timeout_s
        guard.limit_silence(
            idle_s, lambda: IdleTimeout(f"upstream {target.name} was silent for {idle_s:g} s")
        )
        try:
            if answer.status >= 400:
                return await answer.read_all(self._limits.max_error_bytes, guard.touch)
            limit = self._limits.max_answer_bytes
            text = await answer.read_all(limit + 1, guard.touch)
        finally:
            answer.close()
        if len(text) > limit:
            raise UpstreamBroken(f"the answer has more than {limit:,} bytes, which is the limit")
        return text


def _slices(body: memoryview) -> Iterator[memoryview]:
    """Views, not copies: the body of a batch is held once."""
    for start in range(0, len(body), _PIECE_BYTES):
        yield body[start : start + _PIECE_BYTES]
