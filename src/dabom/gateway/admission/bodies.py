"""The bytes of bodies that the gateway receives and holds: bounded over all requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dabom.errors import QueueFull, QueueTimeout
from dabom.gateway.admission.permits import Permits

if TYPE_CHECKING:
    from dabom.errors import DabomError
    from dabom.gateway.admission.claims import Claim
    from dabom.gateway.admission.settings import AdmissionSettings

_ANY_NUMBER = 2**63


class Bodies(Permits):
    """A body's declared bytes are claimed before the first is read; until then the client is not read from.

    So bodies that arrive never wait for each other half received. A body that is larger than all of it may go
    alone; one without a length claims what comes, piece by piece, and is refused when there is no room.
    """

    def __init__(self, settings: AdmissionSettings) -> None:
        super().__init__(_ANY_NUMBER, settings.max_bytes_in_flight, settings)

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
