"""The bytes of bodies that the gateway receives and holds: bounded over all requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dabom.errors import QueueFull, QueueTimeout
from dabom.gateway import headers as head
from dabom.gateway.admission.claims import Claim, read_priority
from dabom.gateway.admission.permits import Permits

if TYPE_CHECKING:
    from dabom.errors import DabomError
    from dabom.gateway.admission.permits import Permit
    from dabom.gateway.admission.settings import AdmissionSettings
    from dabom.gateway.exchange import Exchange
    from dabom.gateway.settings import GatewaySettings

_ANY_NUMBER = 2**63
_NDJSON = b"application/x-ndjson"


class Bodies(Permits):
    """A body's bytes are claimed before the first is read; until then nothing is read from the client.

    So bodies that arrive never wait for each other half received. A body that is larger than all of it may go
    alone.
    """

    def __init__(self, settings: AdmissionSettings) -> None:
        super().__init__(_ANY_NUMBER, settings.max_bytes_in_flight, settings)

    def resize(self, settings: AdmissionSettings) -> None:
        """Other limits from now on."""
        self.change(_ANY_NUMBER, settings.max_bytes_in_flight, settings)

    def room(self, exchange: Exchange, settings: GatewaySettings, *, batch: bool) -> Permit:
        """Room for the body of a request, as much as it can have."""
        size = _most_bytes(exchange, settings, batch=batch)
        priority = read_priority(exchange.headers, exchange.key.priority, items=batch)
        return self.hold(settings.clocks.acquire_timeout_s, Claim(size, priority, exchange.key.id))

    def _late(self, wait_s: float, claim: Claim) -> DabomError:
        return QueueTimeout(
            f"no room for a body of {claim.tokens:,} bytes came free in {wait_s:g} s; the gateway holds at "
            f"most {self.budget:,} bytes at a time; try again later"
        )

    def _full(self, claim: Claim, now: float) -> DabomError:
        return QueueFull(
            f"{self.line.max_queue:,} bodies wait already to be received, which is the limit; the gateway "
            f"holds at most {self.budget:,} bytes at a time; try again later",
            retry_after_s=self.retry_s(now),
        )


def _most_bytes(exchange: Exchange, settings: GatewaySettings, *, batch: bool) -> int:
    """The declared length; without one, what such a body may have at most until it has been received."""
    limits = settings.limits
    if batch and head.media_type(head.find(exchange.headers, b"content-type")) == _NDJSON:
        return limits.max_ndjson_bytes_in_flight
    most = limits.max_batch_bytes if batch else limits.max_body_bytes
    length = head.content_length(exchange.headers)
    if length is not None:
        return min(length, most)  # a longer one is refused before it is read
    return most if head.find(exchange.headers, b"transfer-encoding") is not None else 0
