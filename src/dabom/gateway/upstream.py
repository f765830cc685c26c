"""One model server: its permits, its connections, and its faults in our words."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dabom.errors import ConnectTimeout, UpstreamUnreachable
from dabom.gateway.wire import Answer, Wire

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dabom.gateway.admission import Meter, Permits
    from dabom.gateway.asgi import Headers
    from dabom.gateway.settings import UpstreamSettings

# uvicorn, and so vLLM, closes a connection that rests for 5 s; a request sent in that moment would be lost
_REST_S = 4.0
_CLOCK_GRAIN_S = 0.01
_ONE_WRITE_BYTES = 16 * 1024


class Upstream:
    """Sends requests to one model server over connections that are used again, the warmest first."""

    def __init__(
        self, settings: UpstreamSettings, permits: Permits, meter: Meter, connect_timeout_s: float
    ) -> None:
        url = urlsplit(settings.url)
        self.name = settings.name or url.netloc
        self.permits = permits
        self.meter = meter
        self.models: frozenset[str] | None = None
        """The models that it serves; None while that is not known."""
        key = settings.api_key
        self.authorization = f"Bearer {key.get_secret_value()}".encode() if key else None
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._host = url.hostname or ""
        self._port = url.port or (443 if self._tls else 80)
        self._base = url.path.rstrip("/").encode()
        self._host_line = b" HTTP/1.1\r\nhost: %b\r\n" % url.netloc.rpartition("@")[2].encode()
        self._connect_timeout_s = connect_timeout_s
        self._resting: deque[Wire] = deque()
        self._sweep: asyncio.TimerHandle | None = None

    async def send(
        self, method: str, path: str, headers: Headers, body: Iterable[bytes | memoryview] = ()
    ) -> Answer:
        """The answer as soon as its head is there; `path` begins behind `/v1`. The caller closes it.

        `headers` must hold the length of the body. Raises `UpstreamError`.
        """
        pieces = iter(body)
        first = next(pieces, b"")
        if len(first) > _ONE_WRITE_BYTES:
            pieces, first = chain((first,), pieces), b""
        answer = await self.open(method, path, headers, first)
        try:
            for chunk in pieces:
                if not await answer.put(chunk):
                    break
            else:
                answer.sent = True
            await answer.head()
        except BaseException:
            answer.close()
            raise
        return answer

    async def open(self, method: str, path: str, headers: Headers, first: bytes | memoryview = b"") -> Answer:
        """Send the head of a request with a small `first` piece of its body; the rest is `put`."""
        wire = self._take() or await self._connect()
        answer = Answer(wire, self.name, bodiless=method == "HEAD", release=self._rest)
        lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
        target = self._base + path.encode("latin-1")
        head = b"%b %b%b%b\r\n" % (method.encode(), target, self._host_line, lines)
        wire.ask(answer, head + first)
        return answer

    def close(self) -> None:
        """Close the connections that rest."""
        while self._resting:
            self._resting.pop().close()
        if self._sweep is not None:
            self._sweep.cancel()

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
            async with asyncio.timeout(self._connect_timeout_s):
                _, wire = await loop.create_connection(Wire, self._host, self._port, ssl=self._tls)
        except TimeoutError:
            raise ConnectTimeout(f"upstream {self.name} did not accept a connection in time") from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise UpstreamUnreachable(f"upstream {self.name} cannot be reached: {reason}") from None
        return wire
