"""The ASGI app: relayed paths go to the relay, everything else to the pages."""

from __future__ import annotations

import hmac
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from dabom.errors import DabomError, Draining, MethodNotAllowed, Unauthorized
from dabom.gateway import headers as head
from dabom.gateway.batch import Batch
from dabom.gateway.exchange import LOST, Exchange
from dabom.gateway.facts import FactsReader
from dabom.gateway.fleet import Fleet
from dabom.gateway.guard import Guard
from dabom.gateway.pages import build_pages
from dabom.gateway.relay import Relay
from dabom.gateway.through import Through

if TYPE_CHECKING:
    from collections.abc import Callable

    from dabom.gateway.account import Accounts, Record
    from dabom.gateway.asgi import Message, Receive, Scope, Send
    from dabom.gateway.metrics import Metrics
    from dabom.gateway.settings import GatewaySettings, Limits

CHAT, BATCH, COMPLETIONS, MODELS, V1 = "/chat", "/chat/batch", "/v1/chat/completions", "/v1/models", "/v1/"
_LOGGER = logging.getLogger("dabom.gateway")
_OPEN_PATHS = frozenset({"/healthz", "/readyz"})


class Gateway:
    """One ASGI application. Its lifespan opens and closes the connections to the upstreams."""

    def __init__(self, settings: GatewaySettings, accounts: Accounts) -> None:
        facts = FactsReader()
        self._settings = settings
        self._accounts = accounts
        self.fleet = Fleet(settings, accounts.metrics)
        self._relay = Relay(settings, self.fleet, facts)
        self._batch = Batch(settings, self.fleet, facts, accounts)
        self._through = Through(settings, self.fleet, self._relay)
        self._running: set[Guard] = set()
        self._draining = False
        self._pages = build_pages(self)
        self._key = settings.api_key.get_secret_value().encode() if settings.api_key else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await send({"type": "websocket.close"})

    @property
    def limits(self) -> Limits:
        """How large things may be."""
        return self._settings.limits

    @property
    def metrics(self) -> Metrics:
        """The counters, for the page that shows them."""
        return self._accounts.metrics

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

    def note_refusal(self, request_id: str, error: DabomError) -> None:
        """Account for a request that was refused before it was one."""
        record = self._accounts.open(request_id, "", "")
        record.status, record.code = error.status, error.code
        self._accounts.close(record, "refused")

    async def _live(self, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as stack:
            while True:
                message = await receive()
                if message["type"] == "lifespan.startup":
                    await stack.enter_async_context(self.fleet)
                    await send({"type": "lifespan.startup.complete"})
                else:
                    await stack.aclose()
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
        exchange = Exchange(scope, receive, send, record)
        try:
            self._check_key(scope)
            async with Guard() as guard:
                lost: list[Callable[[], None]] = scope.get(LOST, [])
                lost.append(guard.leave)
                guard.told = LOST in scope
                self._running.add(guard)
                try:
                    await self._route(scope, exchange, guard, label)
                finally:
                    self._running.discard(guard)
                    lost.remove(guard.leave)
        except DabomError as error:
            await exchange.fail(error)
        except Exception:  # a mistake of ours: the client gets the same shape as for any other error
            _LOGGER.exception("request %s failed", record.request_id)
            await exchange.fail(DabomError("the gateway made a mistake; its log has the request id"))
        finally:
            self._accounts.close(record, label)

    async def _route(self, scope: Scope, exchange: Exchange, guard: Guard, label: str) -> None:
        path, method = scope["path"], scope["method"]
        if label == MODELS and method == "GET":
            await self._through.models(exchange, guard)
        elif label == V1:
            await self._through.serve(scope, exchange, guard)
        elif method != "POST" or label == MODELS:
            raise MethodNotAllowed(f"{path} takes {'GET' if label == MODELS else 'POST'}, not {method}")
        elif label == BATCH:
            await self._batch.serve(exchange, guard)
        else:
            await self._relay.serve(exchange, guard, "/chat/completions")

    async def _show(self, scope: Scope, receive: Receive, send: Send, record: Record) -> None:
        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", record.request_id.encode())]
            await send(message)

        try:
            if scope["path"] not in _OPEN_PATHS:
                self._check_key(scope)
            await self._pages(scope, receive, with_id)
        except DabomError as error:
            await Exchange(scope, receive, send, record).fail(error)
        finally:
            self._accounts.close(record, "page")

    def _check_key(self, scope: Scope) -> None:
        if self._key is None:
            return
        scheme, _, key = (head.find(scope["headers"], b"authorization") or b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(key.strip(), self._key):
            raise Unauthorized(
                "the key is missing or wrong; send Authorization: Bearer with the gateway's key"
            )


def _label(path: str) -> str:
    """The gateway's own name of a path, for routing and for metrics."""
    if path in (CHAT, BATCH, COMPLETIONS, MODELS):
        return path
    return V1 if path.startswith(V1) else "page"
