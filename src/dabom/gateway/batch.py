"""Many items in one request: dispatched in order, answered in the order in which they finish."""

from __future__ import annotations

import asyncio
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import TYPE_CHECKING

from dabom.errors import BatchTooLarge, BodyTooLarge, UploadTimeout
from dabom.gateway import headers as head
from dabom.gateway.ask import Asker
from dabom.gateway.dispatch import Dispatch
from dabom.gateway.lines import Budget, failed
from dabom.gateway.relay import check_content
from dabom.gateway.scan import Scanner
from dabom.gateway.upload import Upload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from dabom.gateway.account import Accounts
    from dabom.gateway.exchange import Exchange
    from dabom.gateway.fleet import Fleet
    from dabom.gateway.guard import Guard
    from dabom.gateway.items import Item, ItemReader
    from dabom.gateway.settings import GatewaySettings
    from dabom.gateway.viewer import Viewer

_NDJSON = b"application/x-ndjson"
_UNLIMITED = 2**63
_LINES_PER_TURN = 64
"""Lines read at once; a chunk may hold a hundred thousand, and others want to be served too."""


class Batch:
    """Serves `/chat/batch`."""

    def __init__(
        self, settings: GatewaySettings, fleet: Fleet, reader: ItemReader, accounts: Accounts, viewer: Viewer
    ) -> None:
        self._settings = settings
        self._asker = Asker(settings, fleet, accounts, viewer)
        self._reader = reader

    async def serve(self, exchange: Exchange, guard: Guard) -> None:
        """Answer one batch, JSON or NDJSON."""
        check_content(exchange, _NDJSON)
        if head.media_type(head.find(exchange.headers, b"content-type")) == _NDJSON:
            await self._serve_lines(exchange, guard)
        else:
            await self._serve_list(exchange, guard)

    async def _serve_list(self, exchange: Exchange, guard: Guard) -> None:
        limits, length = self._settings.limits, head.content_length(exchange.headers)
        upload = Upload(exchange.receive, length, limits.max_batch_bytes, BatchTooLarge)
        exchange.uploading = True
        upload.admit()
        upload.limit_silence(guard, self._settings.clocks.upload_idle_timeout_s)
        # pages of a map that are not written to cost nothing: a promised length must not
        body = mmap(-1, length, flags=MAP_PRIVATE | MAP_ANONYMOUS) if length else bytearray()
        scanner, size = Scanner(limits.max_body_bytes), 0
        while chunk := await upload.next():
            guard.touch()
            body[size : size + len(chunk)] = chunk
            size += len(chunk)
            scanner.feed(chunk)
        exchange.received(upload.size)
        items = self._reader.all(scanner.finish(), body)
        guard.unlimit()
        guard.watch(exchange.receive)
        exchange.record.items = len(items)
        exchange.record.bytes_in = upload.size
        await self._start(exchange, (b"x-batch-total", str(len(items)).encode()))
        dispatch = Dispatch(self._asker, exchange, guard, Budget(_UNLIMITED))
        dispatch.pending.update((item.number, item.id) for item in items)
        await dispatch.run(_each(items))
        await exchange.end()

    async def _serve_lines(self, exchange: Exchange, guard: Guard) -> None:
        limits = self._settings.limits
        upload = Upload(exchange.receive, None, _UNLIMITED)
        exchange.uploading = True
        await self._start(exchange)
        dispatch = Dispatch(self._asker, exchange, guard, Budget(limits.max_ndjson_bytes_in_flight))
        await dispatch.run(self._upload_items(upload, exchange, guard, dispatch))
        exchange.record.bytes_in = upload.size
        await exchange.end()

    async def _upload_items(
        self, upload: Upload, exchange: Exchange, guard: Guard, dispatch: Dispatch
    ) -> AsyncIterator[Item]:
        number, seen = 0, set[bytes]()
        try:
            async for line in self._lines(upload, dispatch):
                number += 1
                if not number % _LINES_PER_TURN:
                    await asyncio.sleep(0)
                item = self._reader.one(line, number, seen)
                dispatch.pending[number] = item.id
                await dispatch.budget.take(item.size)
                yield item
        except BodyTooLarge as error:
            dispatch.lines.put(failed(b"null", error))
            exchange.record.code = error.code
        else:
            exchange.uploading = False
            guard.watch(exchange.receive)
        exchange.record.items = number

    async def _lines(self, upload: Upload, dispatch: Dispatch) -> AsyncIterator[bytes]:
        parts, size = list[bytes](), 0
        while chunk := await self._next(upload, dispatch):
            start = 0
            while (end := chunk.find(b"\n", start)) >= 0:
                parts.append(chunk[start:end])
                line, parts, size, start = b"".join(parts), [], 0, end + 1
                self._check_line(len(line))
                if not line.isspace() and line:
                    yield line
            parts.append(chunk[start:])
            size += len(chunk) - start
            self._check_line(size)
        rest = b"".join(parts)
        if rest and not rest.isspace():
            yield rest

    def _check_line(self, size: int) -> None:
        limit = self._settings.limits.max_body_bytes
        if size > limit:
            raise BodyTooLarge(f"a line has more than {limit:,} bytes, which is the limit")

    async def _next(self, upload: Upload, dispatch: Dispatch) -> bytes:
        """The next bytes. A client that waits for its answers before it sends more is not stalled."""
        seconds = self._settings.clocks.upload_idle_timeout_s
        while True:
            try:
                async with asyncio.timeout(seconds):
                    return bytes(await upload.next())
            except TimeoutError:
                if not dispatch.budget.used:
                    raise UploadTimeout(f"no byte of the body came for {seconds:g} s") from None

    async def _start(self, exchange: Exchange, *more: tuple[bytes, bytes]) -> None:
        ident = (b"x-request-id", exchange.record.request_id.encode())
        await exchange.start(200, [(b"content-type", _NDJSON), ident, *more], masked=True)


async def _each(items: Iterable[Item]) -> AsyncIterator[Item]:
    for item in items:
        yield item
