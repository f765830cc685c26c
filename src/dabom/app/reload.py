"""Other settings for a gateway that runs: read, checked, and put in place without dropping a request."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from dabom.app.local import complete, find_children
from dabom.app.settings import exposure
from dabom.errors import ConfigError, ReloadRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dabom.app.local import Children
    from dabom.app.server import Server
    from dabom.app.settings import Settings
    from dabom.gateway import Gateway

_FIXED = ("host", "port", "log_file", "audit")
"""What holds until a restart: a socket, a file and a chain of records that are open."""


class Reload:
    """`await reload()` for `POST /admin/reload`, `hang_up()` for SIGHUP; one at a time."""

    def __init__(self, load: Callable[[], Settings], settings: Settings, children: Children) -> None:
        self._load = load
        self._settings = settings
        self._children = children
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._generation = 0

    def attach(self, gateway: Gateway, server: Server) -> None:
        """Say whose settings these are."""
        self._gateway, self._server = gateway, server
        gateway.on_reload, server.on_hangup = self, self.hang_up

    async def __call__(self) -> list[str]:
        """The names of changed settings that hold only after a restart. Raises `ReloadRefused`."""
        async with self._turn:
            try:
                settings = await asyncio.to_thread(self._load)  # it reads files
                if told := exposure(settings.model_copy(update={"host": self._settings.host})):
                    raise ConfigError(told)
                urls = await self._children.bring(find_children(settings))
            except ConfigError as error:
                raise ReloadRefused(f"the settings stay as they are: {error.message}") from None
            changed = complete(settings, urls).model_copy(update={"audit": self._settings.audit})
            left = await self._gateway.reload(changed)
            self._server.renew(changed.clocks, changed.limits)
            waiting = [name for name in _FIXED if getattr(settings, name) != getattr(self._settings, name)]
            self._settings = settings.model_copy(
                update={name: getattr(self._settings, name) for name in _FIXED}
            )
            self._generation += 1
            self._leaving = {task for task in self._leaving if not task.done()} | {left}
            self._spawn(self._tidy(set(self._leaving), self._generation))
            return waiting

    def hang_up(self) -> None:
        """Reload, and tell on standard error how it went."""
        self._spawn(self._reload_and_tell())

    async def _reload_and_tell(self) -> None:
        try:
            waiting = await self()
        except ReloadRefused as error:
            self._gateway.metrics.reloads.add("refused")
            sys.stderr.write(f"dabom: {error.message}\n")
            return
        self._gateway.metrics.reloads.add("ok")
        later = f"; until a restart these stay as they are: {', '.join(waiting)}" if waiting else ""
        sys.stderr.write(f"dabom: the settings are loaded anew{later}\n")

    async def _tidy(self, leaving: set[asyncio.Task[None]], generation: int) -> None:
        """End children that nobody asks any more, once the requests that began with them are over."""
        await asyncio.wait(leaving)
        if generation == self._generation:
            await self._children.keep(find_children(self._settings))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
