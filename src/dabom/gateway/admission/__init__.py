"""Who gets a permit of a target and when: by requests, by tokens, by priority, fairly between keys."""

from dabom.gateway.admission.bodies import Bodies
from dabom.gateway.admission.claims import SMALLEST, Claim, Priority, read_priority
from dabom.gateway.admission.line import Line, Ticket
from dabom.gateway.admission.permits import Permit, Permits
from dabom.gateway.admission.settings import AdmissionSettings

__all__ = [
    "SMALLEST",
    "AdmissionSettings",
    "Bodies",
    "Claim",
    "Line",
    "Permit",
    "Permits",
    "Priority",
    "Ticket",
    "read_priority",
]
