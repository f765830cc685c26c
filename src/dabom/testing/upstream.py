"""ScriptedUpstream: a real TCP server that plays back scripts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from dabom.testing.connection import Connection
from dabom.testing.replies import chat_answer, json_reply
from dabom.testing.steps import Step

if TYPE_CHECKING:
    from dabom.testing.seen import Seen

_SMALL_RCVBUF_BYTES = 65_536  # so that a sender whose body is not read is stopped soon

Script = Sequence[Step] | Callable[["Seen"], Sequence[Step]]
HeadScript = Sequence[Step] | Callable[["Seen"], Sequence[Step] | None]


class ScriptedUpstream:
    """An upstream on a loopback port whose every byte and every silence is scripted.

    `script` runs when a request has arrived whole; the default answers "ok". `before_body` runs as soon as
    the head is in; a function there may return `None` to leave the request to `script`. With
    `read_body=False` a body is left in the socket, which stops the sender, until an `AwaitBody` step.

    The connection stays open after a script, unless a step ends it or the request says `Connection: close`.
    `GET /v1/models` and `GET /health` are answered from `models`, and recorded in `probes`, not in `seen`;
    `models=None` leaves them to the script.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        before_body: HeadScript | None = None,
        read_body: bool = True,
        models: Sequence[str] | None = ("qwen",),
        keep_bodies: bool = True,
        port: int = 0,
    ) -> None:
        self._script = script if script is not None else json_reply(chat_answer())
        self._before_body = before_body
        self._models = models
        self.read_body = read_body
        self.keep_bodies = keep_bodies
        self.port = port
        self.seen: list[Seen] = []
        self.probes: list[Seen] = []
        self.connections_total = 0
        self._open: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._server: asyncio.Server

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """What `VLLM_BASE_URL` would hold."""
        return f"{self.root}/v1"

    @property
    def open_connections(self) -> int:
        return len(self._open)

    @property
    def busy(self) -> int:
        """Connections on which a request is arriving or being answered."""
        return sum(connection.busy for connection in self._open)

    async def __aenter__(self) -> Self:
        sock = socket.create_server(("127.0.0.1", self.port), backlog=1024)
        if not self.read_body:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_RCVBUF_BYTES)
        self.port = sock.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), sock=sock)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in list(self._open):
            connection.abort()
        await self._until(lambda: not self._open, 5, "connections to close")
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for result in results:
            if isinstance(result, Exception):
                raise result  # a script that failed must not pass unseen

    async def wait_seen(self, count: int = 1, *, complete: bool = False, within_s: float = 5) -> list[Seen]:
        """Wait until the heads (with `complete`, the whole bodies) of so many requests have arrived."""

        def enough() -> bool:
            return sum(seen.complete or not complete for seen in self.seen) >= count

        await self._until(enough, within_s, f"{count} requests")
        return self.seen

    async def wait_idle(self, within_s: float = 5) -> None:
        """Wait until no request is arriving or being answered. Kept-alive connections may stay open."""
        await self._until(lambda: not self.busy, within_s, "requests to end")

    async def wait_closed(self, within_s: float = 5) -> None:
        """Wait until no connection is open."""
        await self._until(lambda: not self._open, within_s, "connections to close")

    async def _until(self, condition: Callable[[], bool], within_s: float, what: str) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            found = f"{len(self.seen)} seen, {self.busy} busy, {self.open_connections} open"
            raise TimeoutError(f"waited {within_s} s for {what}: {found}") from None

    # Owner of connections

    def opened(self, connection: Connection) -> None:
        self.connections_total += 1
        self._open.add(connection)
        self.changed()

    def closed(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._tasks.add(connection.task)
        self.changed()

    def arrived(self, seen: Seen) -> None:
        (self.probes if self._is_probe(seen) else self.seen).append(seen)
        self.changed()

    def changed(self) -> None:
        self._news.set()

    def steps_at_head(self, seen: Seen) -> Sequence[Step] | None:
        if self._before_body is None or self._is_probe(seen):
            return None
        return self._before_body(seen) if callable(self._before_body) else self._before_body

    def steps_at_end(self, seen: Seen) -> Sequence[Step]:
        if self._is_probe(seen):
            return self._probe_reply(seen)
        return self._script(seen) if callable(self._script) else self._script

    def _is_probe(self, seen: Seen) -> bool:
        return self._models is not None and seen.method == "GET" and seen.path in ("/v1/models", "/health")

    def _probe_reply(self, seen: Seen) -> Sequence[Step]:
        if seen.path == "/health":
            return json_reply({})
        models = [
            {"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "scripted"}
            for name in self._models or ()
        ]
        return json_reply({"object": "list", "data": models})


def in_turn(*scripts: Script) -> Callable[[Seen], Sequence[Step]]:
    """The first script for the first request, and so on; the last one for all that follow."""
    left = list(scripts)

    def choose(seen: Seen) -> Sequence[Step]:
        script = left.pop(0) if len(left) > 1 else left[0]
        return script(seen) if callable(script) else script

    return choose
