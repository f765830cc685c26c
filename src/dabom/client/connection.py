"""HTTP to one endpoint: one session, four clocks, retries before the first byte, typed errors."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from dabom.client.refusal import refusal
from dabom.client.upload import Feed, Upload
from dabom.errors import AnswerBroken, AnswerTimeout, AskError, ConnectFailed, Refused

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping

    from dabom.client.endpoint import Endpoint

_MAX_ERROR_BYTES = 1 << 20
_MAX_ANSWER_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Clocks:
    """How long to wait, in seconds; None waits for ever.

    `first_byte_s` runs from the start of the upload to the answer's head, `idle_s` between two pieces of a
    streamed answer, `total_s` over all of it.
    """

    connect_s: float | None = 10
    first_byte_s: float | None = 600
    idle_s: float | None = 120
    total_s: float | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """When to send again: after a failed connection, or a 503 that says `Retry-After`; never mid-answer."""

    attempts: int = 0
    first_wait_s: float = 0.5
    longest_wait_s: float = 30


NO_RETRY = Retry()


def wait_before(retry: Retry, attempt: int, error: AskError, chance: float) -> float | None:
    """Seconds to wait before attempt number `attempt` + 1, or None to give up; `chance` is in [0, 1)."""
    asked = error.retry_after_s if isinstance(error, Refused) and error.status == 503 else None
    if attempt >= retry.attempts or (asked is None and not isinstance(error, ConnectFailed)):
        return None
    backoff: float = min(retry.longest_wait_s, retry.first_wait_s * 2**attempt) * chance
    if asked is not None and asked > retry.longest_wait_s:
        return None
    return (asked or 0) + backoff


class Reply:
    """An answer whose head has come."""

    def __init__(self, response: aiohttp.ClientResponse, feed: Feed | None, ends_at: float | None) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.content_type = response.content_type
        self._response = response
        self._feed = feed
        self._ends_at = ends_at

    @property
    def request_id(self) -> str | None:
        """The endpoint's id for this request."""
        return self.headers.get("X-Request-Id")

    async def pieces(self, idle_s: float | None) -> AsyncGenerator[bytes, None]:
        """The body's pieces as they arrive."""
        loop = asyncio.get_running_loop()
        while True:
            left = None if self._ends_at is None else self._ends_at - loop.time()
            waits = [seconds for seconds in (idle_s, left) if seconds is not None]
            with _translated(self.request_id, self._feed):
                async with asyncio.timeout(min(waits, default=None)):
                    piece = await self._response.content.readany()
            if not piece:
                return
            yield piece

    async def read(self, idle_s: float | None, limit: int = _MAX_ANSWER_BYTES) -> bytes:
        """The whole body; AnswerBroken over the limit."""
        pieces: list[bytes] = []
        size = 0
        async for piece in self.pieces(idle_s):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise AnswerBroken(f"the answer has over {limit:,} bytes", request_id=self.request_id)
        return b"".join(pieces)


class Connection:
    """The session with one endpoint. The key is sent, and never shown."""

    def __init__(self, endpoint: Endpoint, api_key: str | None, clocks: Clocks, concurrency: int) -> None:
        self.endpoint = endpoint
        self.clocks = clocks
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._concurrency = concurrency
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the session."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._concurrency),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.clocks.connect_s),
            headers=self._headers,
            auto_decompress=True,
        )

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def send(
        self, method: str, path: str, upload: Upload | None = None, retry: Retry = NO_RETRY
    ) -> AsyncIterator[Reply]:
        """The answer to one request; an error status raises Refused. Leaving early closes the connection."""
        attempt = 0
        while True:
            try:
                response, feed, ends_at = await self._open(method, path, upload)
                break
            except AskError as error:
                wait = wait_before(retry, attempt, error, random.random())  # noqa: S311 jitter, no secret
                if wait is None or (upload is not None and not upload.repeatable):
                    raise
                attempt += 1
                await asyncio.sleep(wait)
        try:
            yield Reply(response, feed, ends_at)
        finally:
            response.close()  # at its end the connection has gone back to the pool already; else it is cut
            if feed is not None:
                await feed.aclose()

    async def _open(
        self, method: str, path: str, upload: Upload | None
    ) -> tuple[aiohttp.ClientResponse, Feed | None, float | None]:
        if self._session is None:
            raise RuntimeError("the client is not open: use `async with Client(...)`")
        feed = Feed(upload) if upload is not None else None
        now = asyncio.get_running_loop().time()
        ends_at = None if self.clocks.total_s is None else now + self.clocks.total_s
        waits = [
            seconds for seconds in (self.clocks.first_byte_s, self.clocks.total_s) if seconds is not None
        ]
        try:
            with _translated(None, feed):
                async with asyncio.timeout(min(waits, default=None)):
                    response = await self._session.request(
                        method,
                        self.endpoint.url(path),
                        data=feed,
                        headers=_upload_headers(upload),
                        allow_redirects=False,
                    )
            if response.status >= 300:
                await self._refuse(response, feed, ends_at, upload.prompts if upload else ())
        except BaseException:
            if feed is not None:
                await feed.aclose()
            raise
        return response, feed, ends_at

    async def _refuse(
        self,
        response: aiohttp.ClientResponse,
        feed: Feed | None,
        ends_at: float | None,
        prompts: tuple[str, ...],
    ) -> None:
        """Raise the error that the answer tells; its body is read up to a cap and may be cut."""
        body = bytearray()
        try:
            async for piece in Reply(response, feed, ends_at).pieces(10):
                body += piece
                if len(body) > _MAX_ERROR_BYTES:
                    break
        except AskError:
            pass  # the status alone is worth more than the fault of its body
        finally:
            response.close()
        raise refusal(response.status, bytes(body), response.headers, prompts)


def _upload_headers(upload: Upload | None) -> dict[str, str]:
    if upload is None:
        return {}
    length = {} if upload.size is None else {"Content-Length": str(upload.size)}
    return {"Content-Type": upload.content_type, **length}


@contextmanager
def _translated(request_id: str | None, feed: Feed | None) -> Iterator[None]:
    """The HTTP library's errors as ours. A fault of the caller's own item source is raised as it is."""
    try:
        yield
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        if feed is not None and feed.fault is not None:
            raise feed.fault from None
        raise _translate(error, request_id) from error


def _translate(error: Exception, request_id: str | None) -> AskError:
    match error:
        case aiohttp.ConnectionTimeoutError():
            return ConnectFailed("the endpoint did not accept the connection in time")
        case aiohttp.ClientConnectorError():
            return ConnectFailed(f"the endpoint could not be reached ({_reason(error.os_error)})")
        case aiohttp.InvalidURL():
            return ConnectFailed("the endpoint's URL is not valid")
        case TimeoutError():
            return AnswerTimeout("the endpoint did not answer in time", request_id=request_id)
        case aiohttp.ServerDisconnectedError():
            return AnswerBroken("the endpoint closed the connection before its answer", request_id=request_id)
        case aiohttp.ClientPayloadError():
            return AnswerBroken("the answer broke off before its end", request_id=request_id)
    return AnswerBroken(f"the connection failed ({type(error).__name__})", request_id=request_id)


def _reason(error: OSError) -> str:
    """The system's own words: asyncio puts a call and its arguments in their place."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or "no address answered"
