"""The steps of a script: what a scripted upstream does on the wire, one after the other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol


class Wire(Protocol):
    """The connection as a step sees it."""

    async def send(self, octets: bytes) -> None: ...
    async def await_body(self) -> None: ...
    async def stall(self) -> None: ...
    async def reset(self) -> None: ...
    async def close(self) -> None: ...


class Step(Protocol):
    """One thing to do on a connection. A test may bring steps of its own."""

    async def play(self, wire: Wire) -> None: ...


@dataclass(frozen=True, slots=True)
class Send:
    """Write these very bytes; goes on when the kernel has taken them all."""

    octets: bytes

    async def play(self, wire: Wire) -> None:
        await wire.send(self.octets)


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for so long."""

    seconds: float

    async def play(self, wire: Wire) -> None:
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Do nothing until the test sets the event: order without sleeping."""

    event: asyncio.Event

    async def play(self, wire: Wire) -> None:
        await self.event.wait()


@dataclass(frozen=True, slots=True)
class AwaitBody:
    """Read the request to its end. Implied before every script but a `before_body` one."""

    async def play(self, wire: Wire) -> None:
        await wire.await_body()


@dataclass(frozen=True, slots=True)
class Stall:
    """Fall silent until the peer leaves."""

    async def play(self, wire: Wire) -> None:
        await wire.stall()


@dataclass(frozen=True, slots=True)
class Reset:
    """Break the connection with a TCP RST, after what was sent has left."""

    async def play(self, wire: Wire) -> None:
        await wire.reset()


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection with a TCP FIN (an RST if the request was not read to its end: TCP's own rule)."""

    async def play(self, wire: Wire) -> None:
        await wire.close()
