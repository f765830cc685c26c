"""One model server: its permits, its connections, and its faults in our words."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dabom.errors import ConnectTimeout, UpstreamUnreachable
from dabom.gateway.routing import Target, TargetState, target_name
from dabom.gateway.wire import Answer, Wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dabom.gateway.admission import Meter, Permits
    from dabom.gateway.asgi import Headers
    from dabom.gateway.health import Health
    from dabom.gateway.offers import Offer
    from dabom.gateway.settings import Clocks, UpstreamSettings

# uvicorn, and so vLLM, closes a connection that rests for 5 s; a request sent in that moment would be lost
_REST_S = 4.0
_CLOCK_GRAIN_S = 0.01
_OVERLOADED, _FAILED = frozenset({429, 503}), frozenset({500, 502, 504})


class Upstream:
    """Sends requests to one model server over connections that are used again, the warmest first."""

    def __init__(
        self, settings: UpstreamSettings, permits: Permits, meter: Meter, clocks: Clocks, health: Health
    ) -> None:
        url = urlsplit(settings.url)
        self.settings = settings
        self._given = frozenset({settings.model} if settings.model else ())
        self.name = target_name(settings)
        self.permits = permits
        self.meter = meter
        self.clocks = clocks
        self.health = health
        self.models: frozenset[str] | None = None
        """The models that it serves; None while that is not known."""
        self.known = Target(self.name, settings.modalities, self._given)
        """What routing knows of it."""
        self.learned_at = float("-inf")
        self.tokens = self.requests = 0
        """What has been sent here or is on its way: it runs, or waits for a permit."""
        key = settings.api_key
        self.authorization = f"Bearer {key.get_secret_value()}".encode() if key else None
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._host = url.hostname or ""
        self._port = url.port or (443 if self._tls else 80)
        self._base = url.path.rstrip("/").encode()
        self._host_line = b" HTTP/1.1\r\nhost: %b\r\n" % url.netloc.rpartition("@")[2].encode()
        self._resting: deque[Wire] = deque()
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def room(self) -> int | None:
        """Tokens that its model takes, prompt and answer; None while that is not known."""
        return self.meter.max_model_len

    def learn(self, offers: Mapping[str, Offer], now: float) -> bool:
        """Take over what it says of itself; whether that is news."""
        self.learned_at = now
        self.models = frozenset(offers)
        own = offers.get(self.settings.model or "")
        mine = list(offers.values()) if own is None else [own]
        lengths = [offer.max_model_len for offer in mine if offer.max_model_len]
        self.meter.learn(tuple(offers), max(lengths, default=None))
        taken = self.settings.modalities
        if taken is None and mine and all(offer.modalities is not None for offer in mine):
            taken = frozenset().union(*(offer.modalities or () for offer in mine))
        before, self.known = self.known, Target(self.name, taken, self.models | self._given)
        return self.known != before

    def knows_as(self, model: str) -> str:
        """The name under which it serves what a request calls `model`."""
        models = self.models or frozenset()
        if model in models:
            return model
        return self.settings.model or (next(iter(models)) if len(models) == 1 else model)

    def at(self, now: float) -> TargetState:
        """How it is now."""
        return TargetState(self.name, self.health.fit(now), self.tokens, self.requests)

    def expect(self, tokens: int, requests: int = 1) -> None:
        """Count a request that is on its way here, or with negative numbers one that is over."""
        self.tokens += tokens
        self.requests += requests

    def judge(self, status: int, retry_after: bytes | None, now: float) -> None:
        """Learn from an answer how it is."""
        if status in _OVERLOADED:
            wanted = float(retry_after) if retry_after is not None and retry_after.isdigit() else 1.0
            self.health.overloaded(now, wanted)
        elif status in _FAILED:
            self.health.failed(now)
        else:
            self.health.succeeded(now)

    async def send(
        self, method: str, path: str, headers: Headers, body: Sequence[bytes | memoryview] = ()
    ) -> Answer:
        """The answer as soon as its head is there; `path` begins behind `/v1`. The caller closes it.

        `headers` must hold the length of the body. Raises `UpstreamError`.
        """
        wire = self._take() or await self._connect()
        answer = Answer(wire, self.name, bodiless=method == "HEAD", release=self._rest)
        lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
        target = self._base + path.encode("latin-1")
        head = b"%b %b%b%b\r\n" % (method.encode(), target, self._host_line, lines)
        try:
            await answer.ask(head, body)
            await answer.head()
        except BaseException:
            answer.close()
            raise
        return answer

    def close(self) -> None:
        """Close the connections that rest; those of older settings that still run are swept later."""
        while self._resting:
            self._resting.pop().close()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _rest(self, wire: Wire) -> None:
        self._resting.append(wire)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(_REST_S, self._close_old)

    def _close_old(self) -> None:
        loop = asyncio.get_running_loop()
        while self._resting and self._resting[0].rests_since + _REST_S <= loop.time() + _CLOCK_GRAIN_S:
            self._resting.popleft().close()
        self._sweep = None
        if self._resting:
            self._sweep = loop.call_at(self._resting[0].rests_since + _REST_S, self._close_old)

    def _take(self) -> Wire | None:
        while self._resting:
            wire = self._resting.pop()
            if wire.open:
                return wire
        return None

    async def _connect(self) -> Wire:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.clocks.connect_timeout_s):
                _, wire = await loop.create_connection(Wire, self._host, self._port, ssl=self._tls)
        except TimeoutError:
            raise ConnectTimeout(f"upstream {self.name} did not accept a connection in time") from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise UpstreamUnreachable(f"upstream {self.name} cannot be reached: {reason}") from None
        return wire
