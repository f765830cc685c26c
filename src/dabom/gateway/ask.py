"""One item of a batch, asked along its route."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dabom.errors import DabomError, FirstByteTimeout, IdleTimeout, UpstreamBroken, UpstreamError
from dabom.gateway.admission import SMALLEST, Claim, claim_of, weigh
from dabom.gateway.guard import Guard
from dabom.gateway.lines import answered, failed
from dabom.gateway.relay import Outgoing, upstream_headers
from dabom.gateway.usage import TAIL_BYTES, note_usage

if TYPE_CHECKING:
    from dabom.gateway.account import Accounts, Record
    from dabom.gateway.exchange import Exchange
    from dabom.gateway.fleet import Fleet
    from dabom.gateway.items import Item
    from dabom.gateway.media_policy import Edited
    from dabom.gateway.plan import Way
    from dabom.gateway.settings import Clocks, GatewaySettings
    from dabom.gateway.splice import Edit
    from dabom.gateway.upstream import Upstream
    from dabom.gateway.viewer import Viewer
    from dabom.gateway.wire import Answer

PATH = "/chat/batch item"
CHAT = "/chat/completions"


@dataclass(slots=True)
class Asked:
    """An item on its way. `edits` and `claim` are for the target that it is the turn of."""

    item: Item
    way: Way
    record: Record
    outgoing: Outgoing
    edits: list[Edit] = field(default_factory=list)
    claim: Claim = SMALLEST


class Asker:
    """Sends items and makes their lines."""

    def __init__(self, settings: GatewaySettings, fleet: Fleet, accounts: Accounts, viewer: Viewer) -> None:
        self._viewer = viewer
        self.clocks: Clocks = settings.clocks
        self.scalings = settings.media.workers + 1
        """Items of one batch whose pictures may wait to be scaled: as many as keep the processes at work."""
        self._limits = settings.limits
        self._forward = settings.forward_authorization
        self._fleet = fleet
        self._accounts = accounts

    async def begin(self, item: Item, exchange: Exchange) -> Asked:
        """Choose the targets of an item. Raises `DabomError`."""
        self._accounts.admit()
        plan = await self._fleet.plan(item.facts)
        exchange.key.allow(*plan.names(item.facts.model))
        record = self._open(item, exchange)
        outgoing = Outgoing("POST", CHAT, (item.body,), len(item.body), item.facts)
        return Asked(item, self._fleet.way(plan), record, outgoing)

    async def look(self, asked: Asked) -> None:
        """Look at the media of an item; once for all targets. Raises `InvalidMedia`."""
        if asked.outgoing.shown is None:
            item, outgoing = asked.item, asked.outgoing
            shown = await self._viewer.look(item.facts, outgoing.body, lambda: item.options)
            asked.outgoing = replace(outgoing, shown=shown)

    async def fit(self, asked: Asked, exchange: Exchange) -> None:
        """As `weigh`, for an item with media."""
        plan, target, shown = asked.way.plan, asked.way.target, asked.outgoing.shown
        if shown is None:
            self.weigh(asked, exchange)
            return
        facts, _ = plan.adapted(target, asked.outgoing)
        edited = await self._viewer.fit(shown, facts, target, plan.route, plan.max_pixels)
        self.weigh(asked, exchange, edited)

    def weigh(self, asked: Asked, exchange: Exchange, edited: Edited | None = None) -> None:
        """Make the item ready for the target that it is the turn of. Raises `DabomError`."""
        target = asked.way.target
        facts, edits = asked.way.plan.adapted(target, asked.outgoing)
        if edited is not None:
            facts, edits = edited.of(facts), [*edits, *edited.edits]
        contents = None if edited is None else edited.facts
        cost = weigh(target.meter, facts, asked.outgoing.body, CHAT, contents)
        asked.edits, asked.claim = edits, claim_of(cost, exchange, item=True)
        asked.record.predicted_tokens = cost.predicted

    async def ask(self, asked: Asked, exchange: Exchange) -> bytes | None:
        """The line of an item, for which a permit is held; None when another target is to be asked.

        Only cancellation is raised. An item is passed on as a whole, so that until then it can go on.
        """
        item, way, record = asked.item, asked.way, asked.record
        target, line = way.target, None
        way.note(record)
        target.health.began(exchange.now())
        try:
            async with Guard() as guard:
                status, text = await self._answer(asked, exchange, guard)
                if status >= 400 and way.goes_on_from(status, text):
                    return None
                line = self._line(asked, exchange, status, text, round(guard.elapsed_ms()))
        except DabomError as error:
            if isinstance(error, UpstreamError):
                target.health.failed(exchange.now())
            if way.goes_on_after(error):
                return None
            record.status, record.code = error.status, error.code
            line = failed(item.id, error)
        except BaseException:
            target.health.left()
            exchange.key.settle_item(record, asked.claim.tokens)
            self._close(record)
            raise
        way.note(record)
        exchange.key.settle_item(record, asked.claim.tokens)
        self._close(record)
        return line

    def _line(self, asked: Asked, exchange: Exchange, status: int, text: bytes, elapsed_ms: int) -> bytes:
        record = asked.record
        record.status, record.bytes_out = status, len(text)
        note_usage(record, text[-TAIL_BYTES:])
        if exchange.masking is not None:
            text = exchange.masking.item(text)
        return answered(asked.item, status, elapsed_ms, text)

    def refuse(self, item: Item, error: DabomError, exchange: Exchange, asked: Asked | None = None) -> bytes:
        """The line of an item that reaches no upstream, or none any more."""
        record = self._open(item, exchange) if asked is None else asked.record
        record.status, record.code = error.status, error.code
        if asked is not None:
            exchange.key.settle_item(record, asked.claim.tokens)
        self._close(record)
        return failed(item.id, error)

    def _open(self, item: Item, exchange: Exchange) -> Record:
        record = self._accounts.open(f"{exchange.record.request_id}-{item.number}", PATH)
        record.note(item.facts)
        record.key = exchange.key.id
        return record

    def _close(self, record: Record) -> None:
        self._accounts.metrics.items.add(str(record.status))
        self._accounts.close(record, PATH)

    async def _answer(self, asked: Asked, exchange: Exchange, guard: Guard) -> tuple[int, bytes]:
        target = asked.way.target
        answer = await self._send(asked, exchange, guard)
        asked.record.first_byte_ms = guard.elapsed_ms()
        status, wanted = answer.status, answer.find(b"retry-after")
        text = await self._whole(guard, target, answer)
        target.judge(status, wanted, exchange.now())
        return status, text

    async def _send(self, asked: Asked, exchange: Exchange, guard: Guard) -> Answer:
        target, item = asked.way.target, asked.item
        first_s = target.clocks.first_byte_s(stream=False, media=bool(item.facts.media))
        guard.limit_total(target.clocks.total_timeout_s)
        guard.limit_silence(
            first_s, lambda: FirstByteTimeout(f"the upstream sent no first byte in {first_s:g} s")
        )
        own = {
            b"content-type": b"application/json",
            b"x-request-id": f"{exchange.record.request_id}-{item.number}".encode(),
        }
        body, size = asked.outgoing.changed(asked.edits)
        headers = upstream_headers(exchange, target, size, forward=self._forward)
        headers = [(name, own.get(name, value)) for name, value in headers]
        return await target.send("POST", CHAT, headers, body)

    async def _whole(self, guard: Guard, target: Upstream, answer: Answer) -> bytes:
        """The body of an answer; an error's is cut at its limit."""
        idle_s = target.clocks.idle_timeout_s
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
