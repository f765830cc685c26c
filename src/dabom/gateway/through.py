"""Every other path of the upstreams, and the list of models."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from dabom.errors import ClientError, UnsupportedMediaType
from dabom.gateway import headers as head
from dabom.gateway.facts import Facts
from dabom.gateway.relay import Outgoing
from dabom.gateway.upload import Upload

if TYPE_CHECKING:
    from dabom.gateway.asgi import Scope
    from dabom.gateway.exchange import Exchange
    from dabom.gateway.fleet import Fleet
    from dabom.gateway.guard import Guard
    from dabom.gateway.relay import Relay
    from dabom.gateway.settings import GatewaySettings

_REPEATABLE = ("GET", "HEAD", "POST")
"""Methods that another upstream may be asked for; a change of a thing that one of them keeps is its own."""
_LOOKED_AT = 4096
_BEFORE_JSON = b" \t\r\n\xef\xbb\xbf"


class Through:
    """Passes `/v1/*` on. A JSON POST goes the way of a chat; other bodies are passed on unread."""

    def __init__(self, settings: GatewaySettings, fleet: Fleet, relay: Relay) -> None:
        self._settings = settings
        self._fleet = fleet
        self._relay = relay

    async def models(self, exchange: Exchange, guard: Guard) -> None:
        """GET /v1/models: the models of all upstreams in one list, those that the key may use."""
        guard.watch(exchange.receive)
        body = msgspec.json.encode(await self._fleet.models(exchange.key.may_use))
        ident = (b"x-request-id", exchange.record.request_id.encode())
        await exchange.whole(200, [(b"content-type", b"application/json"), ident], body)

    async def serve(self, scope: Scope, exchange: Exchange, guard: Guard) -> None:
        """Any other path below /v1."""
        path, method = upstream_path(scope), scope["method"]
        if method == "POST" and head.is_json(head.find(exchange.headers, b"content-type")):
            await self._relay.serve(exchange, guard, path)
            return
        body = await self._receive(exchange, guard)
        if body[:_LOOKED_AT].lstrip(_BEFORE_JSON).startswith(b"{"):
            # an upstream that does not look at the type would take it, media and outside URLs unread
            raise UnsupportedMediaType(f"the body of {method} is a JSON object; send it as application/json")
        guard.unlimit()
        guard.watch(exchange.receive)
        plan = await self._fleet.any()
        if method not in _REPEATABLE:
            plan = replace(plan, targets=plan.targets[:1])
        exchange.key.allow(*plan.names(None))
        chunks, size = ([body], len(body)) if body else ([], None)
        works = method not in ("GET", "HEAD")  # those ask for a state
        outgoing = Outgoing(method, path, chunks, size, Facts(size=len(body)), works=works)
        await self._relay.send(exchange, guard, plan, outgoing)

    async def _receive(self, exchange: Exchange, guard: Guard) -> bytes:
        limit = self._settings.limits.max_body_bytes
        upload = Upload(exchange.receive, head.content_length(exchange.headers), limit)
        exchange.uploading = True
        upload.admit()
        upload.limit_silence(guard, self._settings.clocks.upload_idle_timeout_s)
        parts = []
        while chunk := await upload.next():
            guard.touch()
            parts.append(chunk)
        exchange.received(upload.size)
        exchange.record.bytes_in = upload.size
        return b"".join(parts)


def upstream_path(scope: Scope) -> str:
    """The path behind /v1 as it was sent, with its query. Raises `ClientError` for one that climbs out."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.decode("latin-1").removeprefix("/v1")
    decoded = scope["path"].replace("\\", "/")
    if ".." in decoded.split("/") or not path.startswith("/"):
        raise ClientError(f"the path {scope['path'][:200]} does not stay below /v1")
    query: bytes = scope.get("query_string", b"")
    return f"{path}?{query.decode('latin-1')}" if query else path
