"""The ASGI app: relayed paths go to the relay, everything else to the pages."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from typing import TYPE_CHECKING

import msgspec

from dabom.errors import DabomError, Draining, MethodNotAllowed, NotFound
from dabom.gateway import headers as head
from dabom.gateway.admission import Bodies
from dabom.gateway.exchange import LOST, Exchange
from dabom.gateway.guard import Guard
from dabom.gateway.keys import KeyUse
from dabom.gateway.pages import build_pages
from dabom.gateway.stage import Stage
from dabom.gateway.usage import note_usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dabom.gateway.account import Accounts, Record
    from dabom.gateway.asgi import Message, Receive, Scope, Send
    from dabom.gateway.fleet import Fleet
    from dabom.gateway.metrics import Metrics
    from dabom.gateway.settings import GatewaySettings, Limits

CHAT, BATCH, COMPLETIONS, MODELS, V1 = "/chat", "/chat/batch", "/v1/chat/completions", "/v1/models", "/v1/"
ADMIN, RELOAD = "/admin/", "/admin/reload"
_LOGGER = logging.getLogger("dabom.gateway")
_ASKS_FOR_A_STATE = ("GET", "HEAD")
_OPEN_PATHS = frozenset({"/healthz", "/readyz"})


class Gateway:
    """One ASGI application. Its lifespan opens and closes the connections to the upstreams."""

    def __init__(self, settings: GatewaySettings, accounts: Accounts) -> None:
        self._accounts = accounts
        self._stage = Stage(settings, accounts)
        self.bodies = Bodies(settings.admission)
        self.metrics.bytes_in_flight.watch(read=lambda: self.bodies.tokens)
        self._leaving: set[asyncio.Task[None]] = set()
        self._running: set[Guard] = set()
        self._draining = False
        self._pages = build_pages(self)
        self.on_reload: Callable[[], Awaitable[list[str]]] | None = None
        """What `POST /admin/reload` does: read settings, hand them to `reload`, and name those that hold only
        after a restart. Raises `DabomError`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await send({"type": "websocket.close"})

    @property
    def fleet(self) -> Fleet:
        """The upstreams of the settings that hold now."""
        return self._stage.fleet

    @property
    def limits(self) -> Limits:
        """How large things may be."""
        return self._stage.settings.limits

    @property
    def metrics(self) -> Metrics:
        """The counters, for the page that shows them."""
        return self._accounts.metrics

    @property
    def accountable(self) -> bool:
        """Whether a new request could be accounted for as the settings demand."""
        return self._accounts.writable

    @property
    def running(self) -> int:
        """Requests at work."""
        return len(self._running)

    @property
    def draining(self) -> bool:
        """Whether the gateway is about to stop."""
        return self._draining

    def drain(self) -> None:
        """From now on /readyz says 503."""
        self._draining = True

    def cut(self) -> None:
        """End what still runs; its clients are told."""
        for guard in tuple(self._running):
            guard.interrupt(Draining("the gateway is shutting down; ask again, or ask another one"))

    async def reload(self, settings: GatewaySettings) -> asyncio.Task[None]:
        """From now on new requests are served by other settings; those that run keep theirs to their end.

        The task that is returned is done when the last of them is over.
        """
        before, after = self._stage, Stage(settings, self._accounts, self._stage)
        await after.open()
        self._stage = after
        self.bodies.resize(settings.admission)
        gone = {one.name for one in before.fleet.upstreams} - {one.name for one in after.fleet.upstreams}
        for name in gone:
            self.metrics.forget(name)
        leaving = asyncio.get_running_loop().create_task(before.leave())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        return leaving

    def note_refusal(self, request_id: str, error: DabomError) -> None:
        """Account for a request that was refused before it was one."""
        record = self._accounts.open(request_id, "", "")
        record.status, record.code = error.status, error.code
        self._accounts.close(record, "refused")

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._stage.open()
                await send({"type": "lifespan.startup.complete"})
            else:
                for leaving in self._leaving:
                    leaving.cancel()
                await asyncio.gather(self._stage.close(), *self._leaving, return_exceptions=True)
                self._accounts.shut()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        record = self._accounts.open(head.request_id(scope["headers"]), path, method)
        label = _label(path)
        if label == "page":
            await self._show(scope, receive, send, record)
            return
        exchange, stage = Exchange(scope, receive, send, record), self._stage
        try:
            if label == ADMIN:
                await self._administer(scope, exchange)
                return
            self._accounts.admit()
            holder = stage.keys.find(scope["headers"], time.time())
            exchange.masking = stage.masking
            counted = 0 if label == BATCH or method in _ASKS_FOR_A_STATE else 1
            with stage, KeyUse(holder, record, requests=counted) as exchange.key:
                async with Guard() as guard:
                    await self._guarded(stage, scope, exchange, guard, label)
        except DabomError as error:
            await exchange.fail(error)
        except Exception as error:  # noqa: BLE001 - a mistake of ours: the client gets the usual shape
            _LOGGER.error("request %s failed: %s", record.request_id, _where(error))
            await exchange.fail(DabomError("the gateway made a mistake; its log has the request id"))
        finally:
            self._accounts.close(record, label)

    async def _guarded(
        self, stage: Stage, scope: Scope, exchange: Exchange, guard: Guard, label: str
    ) -> None:
        lost: list[Callable[[], None]] = scope.get(LOST, [])
        lost.append(guard.leave)
        guard.told = LOST in scope
        self._running.add(guard)
        try:
            async with self.bodies.room(exchange, stage.settings, batch=label == BATCH) as exchange.room:
                await _route(stage, scope, exchange, guard, label)
        finally:
            if label not in (BATCH, MODELS):
                note_usage(exchange.record, exchange.tail.bytes())
            self._running.discard(guard)
            lost.remove(guard.leave)

    async def _administer(self, scope: Scope, exchange: Exchange) -> None:
        path, method = scope["path"], scope["method"]
        self._stage.keys.check_admin(scope["headers"], path)
        if path != RELOAD or self.on_reload is None:
            raise NotFound(f"there is nothing at {path[:200]}")
        if method != "POST":
            raise MethodNotAllowed(f"{path} takes POST, not {method}")
        try:
            waiting = await self.on_reload()
        except DabomError:
            self.metrics.reloads.add("refused")
            raise
        self.metrics.reloads.add("ok")
        ident = (b"x-request-id", exchange.record.request_id.encode())
        body = msgspec.json.encode({"reloaded": True, "after_restart": waiting})
        await exchange.whole(200, [(b"content-type", b"application/json"), ident], body)

    async def _show(self, scope: Scope, receive: Receive, send: Send, record: Record) -> None:
        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", record.request_id.encode())]
            await send(message)

        try:
            if scope["path"] not in _OPEN_PATHS:
                self._stage.keys.check_page(scope["headers"], time.time())
            await self._pages(scope, receive, with_id)
        except DabomError as error:
            await Exchange(scope, receive, send, record).fail(error)
        finally:
            self._accounts.close(record, "page")


async def _route(stage: Stage, scope: Scope, exchange: Exchange, guard: Guard, label: str) -> None:
    path, method = scope["path"], scope["method"]
    if label == MODELS and method == "GET":
        await stage.through.models(exchange, guard)
    elif label == V1:
        await stage.through.serve(scope, exchange, guard)
    elif method != "POST" or label == MODELS:
        raise MethodNotAllowed(f"{path} takes {'GET' if label == MODELS else 'POST'}, not {method}")
    elif label == BATCH:
        await stage.batch.serve(exchange, guard)
    else:
        await stage.relay.serve(exchange, guard, "/chat/completions")


def _where(error: BaseException) -> str:
    """The kind of an error and the lines of code; not its message, which may quote what somebody said."""
    inner = [_where(one) for one in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    lines = "".join(traceback.format_tb(error.__traceback__))
    return "\n".join([f"{type(error).__name__}\n{lines}", *inner])


def _label(path: str) -> str:
    """The gateway's own name of a path, for routing and for metrics."""
    if path in (CHAT, BATCH, COMPLETIONS, MODELS):
        return path
    if path.startswith(ADMIN):
        return ADMIN
    return V1 if path.startswith(V1) else "page"
