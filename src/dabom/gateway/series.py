"""Numbers with labels, as Prometheus reads them: counts, what is so now, and how values spread.

Everything is counted on one event loop, so the counts are plain numbers without locks. Each family has a
bound on its series: a family of `MAX_SERIES` series counts the rest as `other`, whatever a caller gives.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prometheus_client.core import Metric

MAX_SERIES = 2000
OTHER = "other"
_MAX_LABEL = 128


class Series(Protocol):
    """One family of numbers: `name` without the endings that Prometheus appends."""

    @property
    def name(self) -> str: ...
    @property
    def what(self) -> str: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def kind(self) -> str: ...

    def family(self) -> Metric:
        """The numbers as Prometheus wants them."""


class _Named:
    def __init__(self, name: str, what: str, labels: tuple[str, ...]) -> None:
        self.name, self.what, self.labels = name, what, labels

    def _key(self, labels: tuple[str, ...], known: int) -> tuple[str, ...]:
        """The key of a series that is new: `other` when the family is full."""
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {len(labels)} of them")
        if known >= MAX_SERIES:
            return (OTHER,) * len(labels)
        return tuple(label[:_MAX_LABEL] for label in labels)


class Tally(_Named):
    """Counts by labels; they only grow."""

    kind = "counter"

    def __init__(self, name: str, what: str, *labels: str) -> None:
        super().__init__(name, what, labels)
        self._counts: dict[tuple[str, ...], float] = {}

    def add(self, *labels: str, by: float = 1) -> None:
        """Count `by` more; the labels are given in the order of `labels`."""
        try:
            self._counts[labels] += by
        except KeyError:
            key = self._key(labels, len(self._counts))
            self._counts[key] = self._counts.get(key, 0) + by

    def value(self, *labels: str) -> float:
        """What has been counted."""
        return self._counts.get(labels, 0)

    def family(self) -> Metric:
        """The counts as Prometheus wants them."""
        family = CounterMetricFamily(self.name, self.what, labels=self.labels)
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        return family


class Gauge(_Named):
    """What is so now. Nobody has to keep it current: it is read when somebody asks for the page."""

    kind = "gauge"

    def __init__(self, name: str, what: str, *labels: str) -> None:
        super().__init__(name, what, labels)
        self._readers: dict[tuple[str, ...], Callable[[], float]] = {}

    def watch(self, *labels: str, read: Callable[[], float]) -> None:
        """Show what `read` returns when somebody asks, until `forget`; a later reader takes its place."""
        self._readers[self._key(labels, len(self._readers))] = read

    def forget(self, *labels: str) -> None:
        """Show nothing any more of what has these labels, such as an upstream that is gone."""
        self._readers.pop(labels, None)

    def family(self) -> Metric:
        """The values of this moment."""
        family = GaugeMetricFamily(self.name, self.what, labels=self.labels)
        for labels, read in self._readers.items():
            family.add_metric(labels, read())
        return family


class Spread(_Named):
    """How values spread over buckets with the upper bounds `bounds`."""

    kind = "histogram"

    def __init__(self, name: str, what: str, bounds: Sequence[float], labels: Sequence[str]) -> None:
        super().__init__(name, what, tuple(labels))
        self.bounds = tuple(bounds)
        self._texts = (*(f"{float(bound)}" for bound in bounds), "+Inf")
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def add(self, value: float, *labels: str) -> None:
        """Count one more value."""
        if labels not in self._counts:
            labels = self._key(labels, len(self._counts))
            self._counts.setdefault(labels, [0] * len(self._texts))
            self._sums.setdefault(labels, 0.0)
        self._counts[labels][bisect_left(self.bounds, value)] += 1
        self._sums[labels] += value

    def family(self) -> Metric:
        """The counts as Prometheus wants them: each bucket with all below it."""
        family = HistogramMetricFamily(self.name, self.what, labels=self.labels)
        for labels, counts in self._counts.items():
            buckets = list(zip(self._texts, accumulate(counts), strict=True))
            family.add_metric(labels, buckets, self._sums[labels])
        return family
