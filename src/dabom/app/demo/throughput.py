"""The same items one by one and as one batch."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dabom.app.demo.records import Call
from dabom.errors import AskError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dabom.client import Client, Item


@dataclass
class Throughput:
    """The times of both ways, the ids in the order of arrival, and every call."""

    count: int
    sequential_ms: int = 0
    sequential_ok: int = 0
    batch_ms: int = 0
    batch_ok: int = 0
    total: int | None = None
    arrival: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    fault: str = ""

    @property
    def ratio(self) -> float:
        """How many times faster the batch was."""
        return self.sequential_ms / self.batch_ms if self.batch_ms else 0.0

    def whole(self, ids: Sequence[str]) -> bool:
        """All was answered, every id came exactly once, and the endpoint counted right."""
        answered = self.sequential_ok == self.batch_ok == self.count == self.total
        return answered and sorted(self.arrival) == sorted(ids) and not self.fault


async def compare(client: Client, items: Sequence[Item], tick: Callable[[str], None]) -> Throughput:
    """Send the items to `/chat` one after the other, then to `/chat/batch` at once.

    The bodies are built already: only the calls are timed. A call that fails is counted, not raised.
    """
    found = Throughput(len(items))
    start = time.monotonic()
    for item in items:
        call = await timed_call(client, "sequential", item)
        found.calls.append(call)
        found.sequential_ok += call.status == 200
        tick("sequential")
    found.sequential_ms = _since(start)
    start = time.monotonic()
    try:
        await _run_batch(client, items, found, tick)
    except AskError as error:
        found.fault = f"{error.code}: {error.message}"
        found.calls.append(Call("batch", "", error.status, _since(start), error=found.fault))
    found.batch_ms = _since(start)
    return found


async def timed_call(client: Client, step: str, item: Item) -> Call:
    """One `/chat` call as a record."""
    start = time.monotonic()
    try:
        answer = await client.ask(item.request, path="/chat")
    except AskError as error:
        return Call(
            step,
            item.id,
            error.status,
            _since(start),
            item.request.size,
            request_id=error.request_id,
            error=f"{error.code}: {error.message}",
        )
    return Call(
        step,
        item.id,
        200,
        _since(start),
        item.request.size,
        len(answer.raw),
        answer.request_id,
        answer.text,
    )


async def _run_batch(
    client: Client, items: Sequence[Item], found: Throughput, tick: Callable[[str], None]
) -> None:
    sizes = {item.id: item.request.size for item in items}
    async with client.batch(items) as lines:
        found.total = lines.total
        async for line in lines:
            text, error = "", ""
            try:
                text = line.answer().text
            except AskError as fault:
                error = f"{fault.code}: {fault.message}"
            found.arrival.append(line.id)
            found.batch_ok += not error
            found.calls.append(
                Call(
                    "batch",
                    line.id,
                    line.status,
                    line.elapsed_ms,
                    sizes.get(line.id, 0),
                    len(line.body),
                    lines.request_id,
                    text,
                    error,
                )
            )
            tick("batch")


def summary_of(found: Throughput, ids: Sequence[str]) -> dict[str, Any]:
    """The figures of a comparison, for a summary."""
    return {
        "count": found.count,
        "sequential_ms": found.sequential_ms,
        "sequential_ok": found.sequential_ok,
        "batch_ms": found.batch_ms,
        "batch_ok": found.batch_ok,
        "ratio": round(found.ratio, 3),
        "x_batch_total": found.total,
        "arrival": found.arrival,
        "arrival_is_input_order": found.arrival == list(ids),
        "fault": found.fault,
    }


def _since(start: float) -> int:
    return round((time.monotonic() - start) * 1000)
