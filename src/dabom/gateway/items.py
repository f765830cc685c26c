"""The items of a batch: cut out of the bytes that came, never built anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from dabom.errors import BodyTooLarge, ClientError, DabomError, InvalidJson, TooManyItems
from dabom.gateway import scan
from dabom.gateway.facts import Facts
from dabom.gateway.media_options import MediaOptions, read_media_options
from dabom.gateway.scan import Skeleton

if TYPE_CHECKING:
    from mmap import mmap

    from dabom.gateway.facts import FactsReader
    from dabom.gateway.settings import Limits

_NULL = msgspec.Raw(b"null")
_MAX_ID_BYTES = 512
_NO_OPTIONS = MediaOptions()


class _Batch(msgspec.Struct):
    items: msgspec.Raw = _NULL


class _Item(msgspec.Struct):
    id: msgspec.Raw = _NULL
    body: msgspec.Raw = _NULL


@dataclass(slots=True)
class Item:
    """`id` is JSON text. `flaw` says why it must not be dispatched."""

    id: bytes
    number: int
    body: memoryview
    facts: Facts
    flaw: DabomError | None = None
    size: int = 0
    options: MediaOptions = _NO_OPTIONS


class ItemReader:
    """Reads items out of a JSON batch or out of the lines of an NDJSON batch."""

    def __init__(self, facts: FactsReader, limits: Limits) -> None:
        self._facts = facts
        self._limits = limits
        self._batch = msgspec.json.Decoder(_Batch)
        self._list = msgspec.json.Decoder(list[msgspec.Raw])
        self._item = msgspec.json.Decoder(_Item)

    def all(self, skeleton: Skeleton, body: bytearray | mmap) -> list[Item]:
        """The items of a JSON batch; what is wrong with the batch as a whole raises `ClientError`."""
        skeleton = replace(skeleton, text=scan.mend(skeleton.text))  # what is found is then looked for in it
        outer = scan.decode(skeleton.text, self._batch)
        try:
            raws = self._list.decode(outer.items)
        except msgspec.DecodeError:
            raise ClientError(
                'the batch has no list of items; send {"items": [{"id", "body"}, ...]}'
            ) from None
        if not raws:
            raise ClientError("the list of items is empty", param="items")
        if len(raws) > self._limits.max_batch_items:
            raise TooManyItems(
                f"the batch has {len(raws):,} items; the limit is {self._limits.max_batch_items:,}; "
                "send application/x-ndjson for more",
                param="items",
            )
        items: list[Item] = []
        seen: set[bytes] = set()
        position = 0
        whole = memoryview(body)
        for number, raw in enumerate(raws, 1):
            text = bytes(raw)
            position = skeleton.text.index(text, position)
            inner = self._read(text, f"item {number}")
            _remember(inner.id, skeleton, seen, f"item {number}")
            items.append(self._cut(inner, number, skeleton, whole, position))
            position += len(text)
        return items

    def one(self, line: bytes, number: int, seen: set[bytes]) -> Item:
        """The item of one line. Whatever is wrong is its flaw; an item without an id has `null` for one."""
        ident = b"null"
        try:
            skeleton = scan.scan(line)
            skeleton = replace(skeleton, text=scan.mend(skeleton.text))
            inner = self._read(skeleton.text, f"line {number}")
            _remember(inner.id, skeleton, seen, f"line {number}")
            ident = bytes(inner.id)
            item = self._cut(inner, number, skeleton, memoryview(line), 0)
        except ClientError as error:
            item = Item(ident, number, memoryview(b""), Facts(), error)
        item.size = len(line)
        return item

    def _read(self, text: bytes, name: str) -> _Item:
        try:
            return scan.decode(text, self._item)
        except InvalidJson as error:
            raise InvalidJson(f"{name}: {error.message}") from None

    def _cut(self, inner: _Item, number: int, skeleton: Skeleton, whole: memoryview, position: int) -> Item:
        """The body of an item is where its very bytes stand: two places that look alike are alike."""
        text = bytes(inner.body)
        start = skeleton.text.index(text, position) if inner.body is not _NULL else position
        first, last = skeleton.locate(start), skeleton.locate(start + len(text) - 1) + 1
        if last - first > self._limits.max_body_bytes:
            raise BodyTooLarge(
                f"item {number} has {last - first:,} bytes; the limit is {self._limits.max_body_bytes:,}"
            )
        item = Item(bytes(inner.id), number, whole[first:last], Facts())
        try:
            own = Skeleton(text, last - first, skeleton.strings)

            def locate(offset: int) -> int:
                return skeleton.locate(start + offset) - first

            item.facts = self._facts.read(own, locate)
            if item.facts.media:
                item.options = read_media_options(own, locate)
            if item.facts.stream:
                item.flaw = ClientError(
                    "an item of a batch cannot be streamed; leave `stream` out", param="stream"
                )
        except InvalidJson as error:
            item.flaw = error
        return item


def _remember(raw: msgspec.Raw, skeleton: Skeleton, seen: set[bytes], name: str) -> None:
    """Ids are strings or whole numbers, and no two are the same."""
    if raw is _NULL or len(raw) > _MAX_ID_BYTES or bytes(raw)[1:-1] in skeleton.strings:
        raise ClientError(f"{name} has no id, or one of more than {_MAX_ID_BYTES} bytes", param="id")
    try:
        value = msgspec.json.decode(raw, type=str | int)
    except msgspec.DecodeError:
        raise ClientError(f"the id of {name} is neither a string nor a whole number", param="id") from None
    key = msgspec.json.encode(value)
    if key in seen:
        raise ClientError(f"the id of {name} has been used before", param="id")
    seen.add(key)
