"""All children of a gateway. A reload keeps those that stay the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dabom.app.local.child import Child, Keeper

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Children:
    """`async with Children() as children`; at the end all are stopped."""

    def __init__(self) -> None:
        self._kept: dict[Child, Keeper] = {}

    async def __aenter__(self) -> Children:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.keep(())

    async def bring(self, wanted: Iterable[Child]) -> Mapping[Child, str]:
        """The URL of each, when all are ready. Raises `ConfigError`; then none of the new ones stays."""
        given = list(wanted)
        fresh = {child: Keeper(child) for child in given if child not in self._kept}
        try:
            async with asyncio.TaskGroup() as group:
                for keeper in fresh.values():
                    group.create_task(keeper.start())
        except BaseExceptionGroup as faults:  # the first is the reason; the others were stopped for it
            await asyncio.gather(*(keeper.stop() for keeper in fresh.values()))
            raise faults.exceptions[0] from None
        except asyncio.CancelledError:
            await asyncio.gather(*(keeper.stop() for keeper in fresh.values()))
            raise
        self._kept |= fresh
        return {child: self._kept[child].url for child in given}

    async def keep(self, wanted: Iterable[Child]) -> None:
        """Stop all others."""
        gone = [child for child in self._kept if child not in set(wanted)]
        await asyncio.gather(*(self._kept.pop(child).stop() for child in gone))
