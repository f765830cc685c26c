"""What one set of settings makes. A reload builds a second one; the first leaves when it is idle."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dabom.gateway.batch import Batch
from dabom.gateway.facts import FactsReader
from dabom.gateway.fleet import Fleet
from dabom.gateway.items import ItemReader
from dabom.gateway.keys import Keys
from dabom.gateway.masking import Masking
from dabom.gateway.relay import Relay
from dabom.gateway.through import Through
from dabom.gateway.viewer import Viewer

if TYPE_CHECKING:
    from dabom.gateway.account import Accounts
    from dabom.gateway.settings import GatewaySettings


class Stage:
    """`with stage:` around each request that it serves."""

    def __init__(self, settings: GatewaySettings, accounts: Accounts, before: Stage | None = None) -> None:
        facts = FactsReader()
        self.settings = settings
        self.keys: Keys = Keys(settings, accounts.metrics, None if before is None else before.keys)
        self.masking = Masking.by_names(settings.mask, accounts.metrics, settings.limits.max_answer_bytes)
        self.fleet: Fleet = Fleet(settings, accounts.metrics, None if before is None else before.fleet)
        self.viewer = Viewer(settings.media, accounts.metrics)
        self.relay = Relay(settings, self.fleet, facts, self.viewer)
        items = ItemReader(facts, settings.limits)
        self.batch = Batch(settings, self.fleet, items, accounts, self.viewer)
        self.through = Through(settings, self.fleet, self.relay)
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __enter__(self) -> Stage:
        self._running += 1
        self._idle.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self._running -= 1
        if not self._running:
            self._idle.set()

    async def open(self) -> None:
        """Make the connections to the upstreams possible."""
        await self.fleet.__aenter__()

    async def leave(self) -> None:
        """Close when the last request is over, or when there is no time to wait for it."""
        try:
            await self._idle.wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connections, and end the processes that scale pictures."""
        await self.fleet.__aexit__(None, None, None)
        await self.viewer.close()
