"""Many items in one request: what goes up, and the lines that come back in the order of completion."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from dabom.client.answer import Line, read_line
from dabom.client.ndjson import LineReader
from dabom.client.upload import Pieces, Source
from dabom.errors import AnswerBroken

if TYPE_CHECKING:
    from dabom.client.connection import Reply
    from dabom.client.request import Request


@dataclass(frozen=True, slots=True)
class Item:
    """One request of a batch under the caller's own id."""

    id: str
    request: Request


class Lines:
    """The lines of a batch in the order of arrival; `total` is the endpoint's `X-Batch-Total`, or None.

    Fewer lines than `total` raise AnswerBroken at the end: a batch that broke off never looks finished.
    """

    def __init__(self, reply: Reply, idle_s: float | None, prompts: Collection[str]) -> None:
        self.request_id = reply.request_id
        self.total = _number(reply.headers.get("X-Batch-Total"))
        self.seen = 0
        self._reply = reply
        self._idle_s = idle_s
        self._prompts = prompts

    async def __aiter__(self) -> AsyncGenerator[Line, None]:
        reader = LineReader()
        async with aclosing(self._reply.pieces(self._idle_s)) as pieces:
            async for piece in pieces:
                for raw in reader.feed(piece):
                    yield self._line(raw)
        for raw in reader.end():
            yield self._line(raw)
        if self.total is not None and self.seen != self.total:
            raise AnswerBroken(
                f"{self.seen} of {self.total} lines came before the batch ended", request_id=self.request_id
            )

    def _line(self, raw: bytes) -> Line:
        line = read_line(raw, self.request_id, self._prompts)
        self.seen += 1
        return line


def json_upload(items: Sequence[Item]) -> Pieces:
    """`{"items": [...]}` over the very bytes of the requests."""
    return Pieces("application/json", _json_pieces(items), _prompts(items))


def ndjson_upload(items: Iterable[Item] | AsyncIterable[Item], prompts: set[str]) -> Source:
    """One item per line, taken from the iterator while it is sent; its prompts are put into `prompts`."""
    return Source("application/x-ndjson", _ndjson_pieces(items, prompts))


def _item_pieces(item: Item) -> Iterator[bytes]:
    yield b'{"id":' + msgspec.json.encode(item.id) + b',"body":'
    yield from item.request.pieces
    yield b"}"


def _json_pieces(items: Sequence[Item]) -> Iterator[bytes]:
    yield b'{"items":['
    for number, item in enumerate(items):
        if number:
            yield b","
        yield from _item_pieces(item)
    yield b"]}"


async def _ndjson_pieces(
    items: Iterable[Item] | AsyncIterable[Item], prompts: set[str]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(_each(items)) as each:
        async for item in each:
            prompts.update(item.request.prompts)
            # A whole line at once: the far side can start on it without waiting for the next item.
            yield b"".join((*_item_pieces(item), b"\n"))


async def _each(items: Iterable[Item] | AsyncIterable[Item]) -> AsyncGenerator[Item, None]:
    if isinstance(items, AsyncIterable):
        try:
            async for item in items:
                yield item
        finally:
            if isinstance(items, AsyncGenerator):
                await items.aclose()
        return
    for item in items:
        yield item


def _prompts(items: Sequence[Item]) -> tuple[str, ...]:
    return tuple({prompt: None for item in items for prompt in item.request.prompts})


def _number(value: str | None) -> int | None:
    return int(value) if value and value.isascii() and value.isdigit() else None
