"""One model server: its permits, its connections, and its faults in our words."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from dabom.errors import ConnectTimeout, UpstreamBroken, UpstreamError, UpstreamUnreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dabom.gateway.permits import Permits
    from dabom.gateway.settings import Clocks, UpstreamSettings

_AUTO_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_HEAD_LIMIT = 64 * 1024
_READ_BYTES = 256 * 1024
# uvicorn, and so vLLM, closes a connection that rests for 5 s; a request sent in that moment would be lost
_REST_S = 4.0


class _Answer(aiohttp.ClientResponse):
    """Remembers its connection: aiohttp takes a reset for the end of an answer that has no framing."""

    _wire: aiohttp.client_proto.ResponseHandler | None = None

    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        self._wire = connection.protocol
        return await super().start(connection)

    @property
    def was_reset(self) -> bool:
        """Whether it has no framing and its connection did not end in order."""
        if self._wire is None or "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            return False
        return isinstance(self._wire.exception(), OSError)


def open_session(clocks: Clocks) -> aiohttp.ClientSession:
    """The connections to all upstreams. Nothing is decoded, followed, stored or added on the way."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_REST_S, ttl_dns_cache=30),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=clocks.connect_timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_AUTO_HEADERS,
        auto_decompress=False,
        response_class=_Answer,
        read_bufsize=_READ_BYTES,
        max_line_size=_HEAD_LIMIT,
        max_field_size=_HEAD_LIMIT,
        trust_env=False,
    )


class Upstream:
    """Sends requests to one model server."""

    def __init__(self, settings: UpstreamSettings, permits: Permits, session: aiohttp.ClientSession) -> None:
        self.name = settings.name or urlsplit(settings.url).netloc
        self.permits = permits
        self.models: frozenset[str] | None = None
        """The models that it serves; None while that is not known."""
        self.authorization = f"Bearer {settings.api_key.get_secret_value()}" if settings.api_key else None
        self._base = settings.url.rstrip("/")
        self._session = session
        self._url = lru_cache(maxsize=256)(lambda path: URL(self._base + path, encoded=True))

    async def send(
        self,
        method: str,
        path: str,
        headers: list[tuple[str, str]],
        body: AsyncIterator[bytes] | bytes | None = None,
    ) -> aiohttp.ClientResponse:
        """The answer as soon as its head is there; `path` begins behind `/v1`. The caller closes it.

        `headers` must hold the length of a body that is an iterator. Raises `UpstreamError`.
        """
        try:
            return await self._session.request(
                method, self._url(path), headers=headers, data=body, allow_redirects=False
            )
        except aiohttp.ConnectionTimeoutError:
            raise ConnectTimeout(f"upstream {self.name} did not accept a connection in time") from None
        except aiohttp.ClientConnectorError as error:
            reason = error.strerror or type(error.os_error).__name__
            raise UpstreamUnreachable(f"upstream {self.name} cannot be reached: {reason}") from None
        except (aiohttp.ClientError, ConnectionError) as error:
            raise self.broken(error) from None

    async def read(self, answer: aiohttp.ClientResponse) -> bytes:
        """The next bytes of an answer, empty at its end. Raises `UpstreamBroken` when it ends too early."""
        content = answer.content
        try:
            chunk = await content.readany()
            if not chunk and isinstance(answer, _Answer) and answer.was_reset:
                raise ConnectionResetError
            return chunk
        except (aiohttp.ClientError, ConnectionError, RuntimeError) as error:
            # what came in the same breath as the end of the connection still counts; aiohttp has it, but only
            # raises
            buffer = getattr(content, "_buffer", None)
            if buffer:
                left = b"".join(buffer)
                buffer.clear()
                return left
            raise self.broken(error) from None

    def broken(self, error: Exception) -> UpstreamError:
        """Our word for a connection that broke. aiohttp's text may quote the answer; its kind is told."""
        return UpstreamBroken(
            f"upstream {self.name} broke off before its answer was whole ({type(error).__name__})"
        )
