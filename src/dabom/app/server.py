"""The process that listens: starts the gateway, and on SIGTERM lets it finish what runs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

from dabom.app.audit import build_audit
from dabom.app.local import Children, complete, find_children
from dabom.app.memory import keep_memory_steady, spare_collector
from dabom.app.protocol import build_protocol
from dabom.app.reload import Reload
from dabom.errors import ConfigError
from dabom.gateway import Accounts, Gateway, Log, Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dabom.app.settings import Settings
    from dabom.gateway import Clocks, GatewaySettings, Limits

_BACKLOG = 2048
_REST_S = 75
_LAST_WORDS_S = 6.0


def build(settings: GatewaySettings, log_descriptor: int = 2) -> Gateway:
    """The gateway as an ASGI app; its log goes to a file descriptor."""
    metrics = Metrics()
    audit = build_audit(settings.audit, metrics)
    return Gateway(settings, Accounts(Log(log_descriptor, metrics), metrics, audit))


def serve(settings: Settings, load: Callable[[], Settings]) -> None:
    """Run until SIGTERM or SIGINT; `load` gives the settings anew on SIGHUP and `POST /admin/reload`.

    Raises `ConfigError` when the port cannot be had, or a server of our own does not start.
    """
    _open_standard_streams()
    keep_memory_steady()
    hangup = Hangup()
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve(settings, load, hangup))


async def _serve(settings: Settings, load: Callable[[], Settings], hangup: Hangup) -> None:
    async with Children() as children:
        urls = await children.bring(find_children(settings))
        gateway_settings = complete(settings, urls)
        gateway = build(gateway_settings, _open_log(settings))
        server = Server(gateway, settings, gateway_settings.clocks, hangup)
        Reload(load, settings, children).attach(gateway, server)
        await server.serve()


class Hangup:
    """SIGHUP has two meanings: load the settings anew, and, in a terminal, that it has been closed.

    Before there is a loop to tell, the first is remembered and the second ends the process.
    """

    def __init__(self) -> None:
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # under nohup
        self._in_terminal = _has_terminal() and not ignored
        self.came_early = False
        if not ignored:
            signal.signal(signal.SIGHUP, self._come_early)

    @property
    def is_the_end(self) -> bool:
        """Whether the terminal has been closed."""
        return self._in_terminal and not _has_terminal()

    def _come_early(self, *_: object) -> None:
        if self.is_the_end:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGHUP)
        self.came_early = True


class Server(uvicorn.Server):
    """uvicorn, but it drains, and the process ends with 0 after SIGTERM."""

    def __init__(
        self, gateway: Gateway, settings: Settings, clocks: Clocks, hangup: Hangup | None = None
    ) -> None:
        limits = gateway.limits
        config = uvicorn.Config(
            gateway,
            host=settings.host,
            port=settings.port,
            http=build_protocol(clocks, limits, gateway.note_refusal),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_REST_S,
            timeout_graceful_shutdown=int(clocks.drain_timeout_s + _LAST_WORDS_S),
        )
        super().__init__(config)
        self._gateway = gateway
        self._clocks = clocks
        self._draining: asyncio.Task[None] | None = None
        self._hangup = hangup
        self.on_hangup: Callable[[], None] = lambda: None
        """What SIGHUP does; without it the signal would end the process."""
        logging.getLogger("uvicorn.error").addFilter(_says_something)

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        try:
            await super().startup(None)
        except UnicodeError:  # of a name that DNS cannot hold
            raise ConfigError(f"host {self.config.host[:80]} is no name") from None
        except SystemExit as end:
            reason = getattr(end.__context__, "strerror", None) or "the address cannot be had"
            raise ConfigError(
                f"cannot listen on {self.config.host}:{self.config.port}: {reason.rpartition(': ')[2]}"
            ) from None
        spare_collector()
        port = self.servers[0].sockets[0].getsockname()[1]
        sys.stderr.write(f"dabom listens on http://{self.config.host}:{port} (API pages: /docs)\n")
        if self._hangup is not None and self._hangup.came_early:
            self.on_hangup()

    def renew(self, clocks: Clocks, limits: Limits) -> None:
        """Let connections that are made from now on keep to other times and sizes."""
        self._clocks = clocks
        self.config.http_protocol_class = build_protocol(clocks, limits, self._gateway.note_refusal)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn raises the signal again when it has stopped, and the process would die of it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop)
        self._hangup = self._hangup or Hangup()
        loop.add_signal_handler(signal.SIGHUP, self._told_to_reload)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)

    def _told_to_stop(self) -> None:
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._drain())
        else:
            self._gateway.cut()
            self.should_exit = self.force_exit = True

    def _told_to_reload(self) -> None:
        hangup = self._hangup
        if hangup is not None and hangup.is_the_end:
            self._told_to_stop()
        elif hangup is not None and not self.started:
            hangup.came_early = True
        elif self._draining is None:
            self.on_hangup()

    async def _drain(self) -> None:
        """Notice, then no new connection, then what runs may finish, then the rest is cut."""
        self._gateway.drain()
        await asyncio.sleep(self._clocks.drain_notice_s)
        self.should_exit = True
        await asyncio.sleep(self._clocks.drain_timeout_s)
        self._gateway.cut()


def _has_terminal() -> bool:
    """Whether the process belongs to a terminal; one that has been closed is none."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _open_standard_streams() -> None:
    """Put the null device where a stream has been closed, else a socket gets its number and then the log."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _says_something(record: logging.LogRecord) -> bool:
    """Cutting an answer short is how the gateway says that it is not whole; to uvicorn it is a mistake.

    A port that cannot be had is told by us.
    """
    return not isinstance(record.msg, OSError) and not record.getMessage().startswith(
        "ASGI callable returned without completing response"
    )


def _open_log(settings: Settings) -> int:
    if settings.log_file is None:
        return 2
    try:
        return os.open(settings.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    except OSError as error:
        raise ConfigError(f"log_file {settings.log_file} cannot be opened: {error.strerror}") from None


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()
