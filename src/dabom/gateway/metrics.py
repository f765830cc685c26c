"""All numbers that a gateway tells Prometheus; docs/metrics.md is made from this file.

Every label comes from the settings or from a fixed list, never from what a client sends: a client cannot make
a new series. Modules count what they know with `metrics.NAME.add(labels...)` and show what is so now with
`metrics.NAME.watch(labels..., read=function)`. What is known of a request only at its end is written into its
`Record`, and counted once, by `answered`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from dabom.gateway.series import Gauge, Spread, Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from dabom.gateway.account import Record
    from dabom.gateway.series import Series

_BOUNDS_S = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
_BOUNDS_RATIO = (0.25, 0.5, 0.8, 0.9, 0.95, 0.99, 0.9999, 1.0, 1.01, 1.05, 1.1, 1.25, 2, 4)
_MODALITIES = ("video", "audio", "image", "file")
_WHOSE = ("route", "upstream", "modality")

LABELS = {
    "path": "`/chat`, `/chat/batch`, `/chat/batch item`, `/v1/chat/completions`, `/v1/models`, `/v1/` (any "
    "other path below it), `/admin/`, `page`, `refused`",
    "route": "a route or a model of the settings; empty when there is none",
    "upstream": "name of an upstream of the settings; empty when the request reached none",
    "modality": "the first of `video`, `audio`, `image`, `file` that the request holds, else `text`",
    "status": "HTTP status",
    "code": "a code of [errors](errors.md), or `http_` and the status when the upstream itself refused",
    "direction": "`in` (from clients) or `out` (to clients)",
    "kind": "see the family's own words",
    "key": "id of a key of the settings; empty when there are no keys",
    "outcome": "see the family's own words",
    "state": "`closed`, `half_open` or `open`",
}


class Pool(Protocol):
    """What the permits of an upstream tell."""

    @property
    def held(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def budget(self) -> int | None: ...


class _Requests:
    """What is counted at the end of a request."""

    def __init__(self) -> None:
        self.requests = Tally("dabom_requests", "Answered requests", "path", *_WHOSE, "status")
        self.errors = Tally("dabom_errors", "Failed requests", "code", "route", "upstream")
        self.moved = Tally("dabom_bytes", "Bytes of bodies", "direction")
        self.items = Tally("dabom_batch_items", "Items of batches", "status")
        self.media = Tally("dabom_media", "Media parts; kind: image, video, audio, file", "kind")
        self.queue = Spread("dabom_queue_seconds", "Wait for a permit", _BOUNDS_S, _WHOSE)
        self.first_byte = Spread(
            "dabom_first_byte_seconds", "From the permit to the first byte", _BOUNDS_S, _WHOSE
        )
        self.total = Spread(
            "dabom_total_seconds", "From the first byte of a request to the last", _BOUNDS_S, _WHOSE
        )
        self.tokens = Tally(
            "dabom_tokens",
            "Tokens of answered requests; kind: predicted (of the prompt, by the gateway), prompt and answer "
            "(both as the upstream reports them)",
            *_WHOSE,
            "kind",
        )
        self.token_ratio = Spread(
            "dabom_prompt_tokens_ratio",
            "Predicted prompt tokens divided by those that the upstream reports; 1 is exact",
            _BOUNDS_RATIO,
            _WHOSE,
        )
        self.key_requests = Tally("dabom_key_requests", "Answered requests by key", "key", "status")
        self.key_tokens = Tally(
            "dabom_key_tokens",
            "Tokens by key as the upstream reports them; kind: prompt, answer",
            "key",
            "kind",
        )


class _Events:
    """What is counted when it happens, by the module that knows of it."""

    def __init__(self) -> None:
        self.fallbacks = Tally(
            "dabom_fallbacks",
            "Hops to the next target; upstream: the one that failed",
            "route",
            "upstream",
            "code",
        )
        """`metrics.fallbacks.add(route, failed_upstream, code)`"""
        self.retries = Tally("dabom_retries", "Repeated tries of the same upstream", "upstream", "code")
        """`metrics.retries.add(upstream, code)`"""
        self.breaker_changes = Tally(
            "dabom_breaker_changes", "Changes of a breaker to a state", "upstream", "state"
        )
        """`metrics.breaker_changes.add(upstream, "open")`"""
        self.normalised = Tally(
            "dabom_pictures_normalised",
            "Pictures that were written anew; kind: scaled, rotated, converted, low",
            "route",
            "kind",
        )
        """`metrics.normalised.add(route, "scaled")`"""
        self.picture_bytes = Tally(
            "dabom_pictures_normalised_bytes", "Bytes of these pictures; kind: before, after", "kind"
        )
        """`metrics.picture_bytes.add("before", by=n)`"""
        self.fetches = Tally(
            "dabom_media_fetches",
            "Outside URLs that were fetched; outcome: ok or the error's code",
            "outcome",
        )
        """`metrics.fetches.add("ok")`"""
        self.masked = Tally("dabom_masked", "Personal data masked in answers; kind: the detector's", "kind")
        self.audit = Tally(
            "dabom_audit_records",
            "Audit records; outcome: written, dropped (no room), refused (requests that were not let in), "
            "failed (tries to write)",
            "outcome",
        )
        """`metrics.audit.add("written", by=n)`"""
        self.reloads = Tally("dabom_reloads", "Loads of new settings; outcome: ok, refused", "outcome")
        self.lines_lost = Tally("dabom_log_lines_lost", "Log lines dropped since nobody took them")


class _States:
    """What is so now."""

    def __init__(self) -> None:
        self.permits_held = Gauge("dabom_permits_held", "Permits in use", "upstream")
        self.permits_waiting = Gauge("dabom_permits_waiting", "Requests in line", "upstream")
        self.permits_limit = Gauge("dabom_permits_limit", "Permits of an upstream", "upstream")
        self.tokens_in_flight = Gauge(
            "dabom_tokens_in_flight", "Tokens (prompt and longest answer) of running requests", "upstream"
        )
        """`metrics.tokens_in_flight.watch(upstream, read=lambda: pool.tokens_held)`"""
        self.token_budget = Gauge(
            "dabom_token_budget", "Most tokens in flight; none: not bounded", "upstream"
        )
        self.breaker = Gauge("dabom_breaker_state", "0 closed, 1 half-open, 2 open", "upstream")
        """`metrics.breaker.watch(upstream, read=lambda: float(breaker.state))`"""
        self.healthy = Gauge("dabom_upstream_healthy", "1 when the last probes were answered", "upstream")
        self.bytes_in_flight = Gauge("dabom_bytes_in_flight", "Bytes of bodies that are held")
        """`metrics.bytes_in_flight.watch(read=lambda: bytes_held)`"""
        self.key_running = Gauge("dabom_key_running", "Requests of a key at work", "key")
        self.audit_waiting = Gauge("dabom_audit_waiting", "Audit records that are not written yet")


class Metrics(_Requests, _Events, _States, Collector):
    """All counts of one gateway."""

    def __init__(self) -> None:
        for part in (_Requests, _Events, _States):
            part.__init__(self)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def answered(self, record: Record, path: str) -> None:
        """Count a request that is over. `path` is one of the gateway's own names."""
        upstream, whose = record.upstream, (record.route, record.upstream, modality(record))
        status = str(record.status)
        self.requests.add(path, *whose, status)
        if code := record.code or (f"http_{status}" if upstream and record.status >= 400 else ""):
            self.errors.add(code, record.route, upstream)
        if upstream:
            self.queue.add(record.queue_ms / 1000, *whose)
            if record.first_byte_ms is not None:  # on a clock of whole milliseconds it may be 0
                self.first_byte.add(record.first_byte_ms / 1000, *whose)
            self.total.add(record.total_ms / 1000, *whose)
        self.moved.add("in", by=record.bytes_in)
        self.moved.add("out", by=record.bytes_out)
        for part in record.media:
            self.media.add(getattr(part, "kind", ""))
        if record.key:
            self.key_requests.add(record.key, status)
        self._count_tokens(record, whose)

    def _count_tokens(self, record: Record, whose: tuple[str, str, str]) -> None:
        predicted, prompt, answer = record.predicted_tokens, record.prompt_tokens, record.answer_tokens
        if predicted:
            self.tokens.add(*whose, "predicted", by=predicted)
            if prompt:
                self.token_ratio.add(predicted / prompt, *whose)
        for kind, count in (("prompt", prompt), ("answer", answer)):
            if count is not None:
                self.tokens.add(*whose, kind, by=count)
                if record.key:
                    self.key_tokens.add(record.key, kind, by=count)

    def show_permits(self, upstream: str, permits: Pool) -> None:
        """Read the pool of an upstream when somebody asks."""
        self.permits_held.watch(upstream, read=lambda: permits.held)
        self.permits_waiting.watch(upstream, read=lambda: permits.waiting)
        self.permits_limit.watch(upstream, read=lambda: permits.limit)
        self.tokens_in_flight.watch(upstream, read=lambda: permits.tokens)
        if permits.budget is not None:
            budget = permits.budget
            self.token_budget.watch(upstream, read=lambda: budget)

    def forget(self, upstream: str) -> None:
        """Show nothing any more of an upstream that is gone; what has been counted of it stays."""
        for series in self.all():
            if isinstance(series, Gauge) and series.labels == ("upstream",):
                series.forget(upstream)

    def all(self) -> Iterator[Series]:
        """Every family, in the order of the documentation."""
        for series in vars(self).values():
            if isinstance(series, Tally | Spread | Gauge):
                yield series

    def collect(self) -> Iterator[Metric]:
        """All families."""
        for series in self.all():
            yield series.family()

    def text(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self._registry)


def modality(record: Record) -> str:
    """The heaviest thing that a request holds, in one word."""
    if not record.media:
        return "text"
    kinds = {getattr(part, "kind", "") for part in record.media}
    return next((kind for kind in _MODALITIES if kind in kinds), "text")
