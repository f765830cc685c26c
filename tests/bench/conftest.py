"""`bench/` is no installed package; its tests import it from the root of the repository."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


@pytest.fixture
def answering() -> Callable[[bytes], AbstractAsyncContextManager[str]]:
    """A server that gives the same bytes to every request that fits into one read; yields its URL."""

    @asynccontextmanager
    async def serve(answer: bytes) -> AsyncIterator[str]:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(65_536):
                writer.write(answer)
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat/completions"

    return serve
