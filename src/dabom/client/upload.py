"""A request's body on its way out: small pieces are joined, large ones are sliced, none is copied whole."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable

_SLICE = 256 << 10
_SMALL = 64 << 10


class Upload(Protocol):
    """A body that can be sent; `size` is None when nobody knows it before the end."""

    content_type: str
    size: int | None
    prompts: tuple[str, ...]
    repeatable: bool

    def pieces(self) -> AsyncIterator[bytes | memoryview]:
        """The body from its start."""
        ...


class Pieces:
    """A body whose pieces are at hand: it can be sent again."""

    repeatable = True

    def __init__(self, content_type: str, pieces: Iterable[bytes], prompts: tuple[str, ...] = ()) -> None:
        self.content_type = content_type
        self.prompts = prompts
        self._pieces = tuple(pieces)
        self.size: int | None = sum(map(len, self._pieces))

    async def pieces(self) -> AsyncGenerator[bytes | memoryview, None]:
        small = bytearray()
        for piece in self._pieces:
            if len(piece) < _SMALL:
                small += piece
            if small and (len(small) >= _SMALL or len(piece) >= _SMALL):
                yield bytes(small)
                small.clear()
            if len(piece) >= _SMALL:
                view = memoryview(piece)
                for start in range(0, len(view), _SLICE):
                    yield view[start : start + _SLICE]
        if small:
            yield bytes(small)


class Source:
    """A body that a caller's iterator makes while it is sent: once, with no known size."""

    repeatable = False
    size: int | None = None
    prompts: tuple[str, ...] = ()

    def __init__(self, content_type: str, source: AsyncGenerator[bytes, None]) -> None:
        self.content_type = content_type
        self._source = source

    async def pieces(self) -> AsyncGenerator[bytes | memoryview, None]:
        async with aclosing(self._source) as source:
            async for piece in source:
                yield piece


class Feed:
    """What the HTTP library is given: keeps a fault of the body's own source apart from the network's."""

    def __init__(self, upload: Upload) -> None:
        self.fault: Exception | None = None
        self._generator = self._run(upload)

    def __aiter__(self) -> AsyncIterator[bytes | memoryview]:
        return self._generator

    async def _run(self, upload: Upload) -> AsyncGenerator[bytes | memoryview, None]:
        try:
            async for piece in upload.pieces():
                yield piece
        except Exception as fault:
            self.fault = fault
            raise

    async def aclose(self) -> None:
        """Close the source; call it once the library has stopped sending."""
        await asyncio.sleep(0)  # a cancelled sender lets go of the generator on the next turn of the loop
        with suppress(RuntimeError):  # still running its own clean-up: it closes by itself
            await self._generator.aclose()
