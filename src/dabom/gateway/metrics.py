"""Prometheus metrics. Labels are upstreams, paths of a fixed list, statuses and error codes: bounded."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from dabom.gateway.permits import Permits

_SECONDS = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """One registry; every series is made on first use and then found in a table."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        requests = Counter(
            "dabom_requests", "Answered requests", ("path", "upstream", "status"), registry=self.registry
        )
        errors = Counter("dabom_errors", "Failed requests by code", ("code",), registry=self.registry)
        queue = _seconds("dabom_queue_seconds", "Wait for a permit", self.registry)
        first = _seconds("dabom_first_byte_seconds", "From the permit to the first byte", self.registry)
        total = _seconds("dabom_total_seconds", "From the first byte of a request to the last", self.registry)
        moved = Counter("dabom_bytes", "Bytes of bodies", ("direction",), registry=self.registry)
        items = Counter("dabom_batch_items", "Items of batches", ("status",), registry=self.registry)
        media = Counter("dabom_media", "Media parts", ("kind",), registry=self.registry)
        lost = Counter(
            "dabom_log_lines_lost", "Log lines dropped since nobody took them", registry=self.registry
        )
        self.request = cache(requests.labels)
        self.error = cache(errors.labels)
        self.queue_seconds = cache(queue.labels)
        self.first_byte_seconds = cache(first.labels)
        self.total_seconds = cache(total.labels)
        self.bytes_moved = cache(moved.labels)
        self.batch_item = cache(items.labels)
        self.media_part = cache(media.labels)
        self.log_lines_lost = lost
        self._held = Gauge("dabom_permits_held", "Permits in use", ("upstream",), registry=self.registry)
        self._waiting = Gauge(
            "dabom_permits_waiting", "Requests in line", ("upstream",), registry=self.registry
        )
        self._limit = Gauge(
            "dabom_permits_limit", "Permits of an upstream", ("upstream",), registry=self.registry
        )

    def show_permits(self, upstream: str, permits: Permits) -> None:
        """Read the pool when somebody asks, not on every request."""
        self._held.labels(upstream).set_function(lambda: permits.held)
        self._waiting.labels(upstream).set_function(lambda: permits.waiting)
        self._limit.labels(upstream).set(permits.limit)

    def text(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self.registry)


def _seconds(name: str, what: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(name, what, ("upstream",), buckets=_SECONDS, registry=registry)
