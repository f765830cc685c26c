"""Prometheus metrics. Labels are upstreams, paths of a fixed list, statuses and error codes: bounded.

Everything is counted on one event loop, so the counts are plain numbers without locks. `prometheus_client`
asks for them when somebody reads the page.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from dabom.gateway.permits import Permits

_BOUNDS_S = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
_BOUNDS_TEXT = (*(f"{float(bound)}" for bound in _BOUNDS_S), "+Inf")


class Tally:
    """Counts by labels."""

    def __init__(self, name: str, what: str, *labels: str) -> None:
        self._head = (name, what, labels)
        self._counts: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def add(self, *labels: str, by: float = 1) -> None:
        """Count `by` more."""
        self._counts[labels] += by

    def family(self) -> Metric:
        """The counts as Prometheus wants them."""
        name, what, names = self._head
        family = CounterMetricFamily(name, what, labels=names)
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        return family


class Seconds:
    """How long something took, by upstream."""

    def __init__(self, name: str, what: str) -> None:
        self._head = (name, what)
        self._counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(_BOUNDS_TEXT))
        self._sums: defaultdict[str, float] = defaultdict(float)

    def add(self, upstream: str, seconds: float) -> None:
        """Count one more."""
        self._counts[upstream][bisect_left(_BOUNDS_S, seconds)] += 1
        self._sums[upstream] += seconds

    def family(self) -> Metric:
        """The counts as Prometheus wants them: each bucket with all below it."""
        family = HistogramMetricFamily(*self._head, labels=("upstream",))
        for upstream, counts in self._counts.items():
            buckets = list(zip(_BOUNDS_TEXT, accumulate(counts), strict=True))
            family.add_metric((upstream,), buckets, self._sums[upstream])
        return family


class Metrics(Collector):
    """All counts of one gateway."""

    def __init__(self) -> None:
        self.requests = Tally("dabom_requests", "Answered requests", "path", "upstream", "status")
        self.errors = Tally("dabom_errors", "Failed requests by code", "code")
        self.moved = Tally("dabom_bytes", "Bytes of bodies", "direction")
        self.items = Tally("dabom_batch_items", "Items of batches", "status")
        self.media = Tally("dabom_media", "Media parts", "kind")
        self.lines_lost = Tally("dabom_log_lines_lost", "Log lines dropped since nobody took them")
        self.queue = Seconds("dabom_queue_seconds", "Wait for a permit")
        self.first_byte = Seconds("dabom_first_byte_seconds", "From the permit to the first byte")
        self.total = Seconds("dabom_total_seconds", "From the first byte of a request to the last")
        self._permits: dict[str, Permits] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def show_permits(self, upstream: str, permits: Permits) -> None:
        """Read the pool of an upstream when somebody asks."""
        self._permits[upstream] = permits

    def collect(self) -> Iterator[Metric]:
        """All families."""
        for tally in (self.requests, self.errors, self.moved, self.items, self.media, self.lines_lost):
            yield tally.family()
        for seconds in (self.queue, self.first_byte, self.total):
            yield seconds.family()
        held = GaugeMetricFamily("dabom_permits_held", "Permits in use", labels=("upstream",))
        waiting = GaugeMetricFamily("dabom_permits_waiting", "Requests in line", labels=("upstream",))
        limit = GaugeMetricFamily("dabom_permits_limit", "Permits of an upstream", labels=("upstream",))
        for name, permits in self._permits.items():
            held.add_metric((name,), permits.held)
            waiting.add_metric((name,), permits.waiting)
            limit.add_metric((name,), permits.limit)
        yield from (held, waiting, limit)

    def text(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self._registry)
