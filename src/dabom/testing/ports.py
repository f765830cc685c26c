"""Upstreams that cannot be reached: one that refuses, one on which a connect hangs."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FILL = 8  # connects; the kernel completes one or two with a backlog of 0 and drops the rest


@contextlib.contextmanager
def refusing_upstream() -> Iterator[str]:
    """The URL of a loopback port that refuses every connection; it is held, so nobody else can take it."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/v1"


@contextlib.contextmanager
def hanging_upstream() -> Iterator[str]:
    """The URL of a loopback port on which `connect` hangs: its queue is full and nobody accepts (Linux)."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(_FILL):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
