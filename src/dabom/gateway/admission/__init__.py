"""Who gets a permit of a target and when: by requests, by tokens, by priority, fairly between keys."""

from dabom.gateway.admission.bodies import Bodies
from dabom.gateway.admission.claims import SMALLEST, Claim, Priority, read_priority
from dabom.gateway.admission.cost import Meter, Part, RequestCost
from dabom.gateway.admission.door import claim_of, weigh
from dabom.gateway.admission.line import Line, Ticket
from dabom.gateway.admission.permits import Permit, Permits
from dabom.gateway.admission.settings import AdmissionSettings

__all__ = [
    "SMALLEST",
    "AdmissionSettings",
    "Bodies",
    "Claim",
    "Line",
    "Meter",
    "Part",
    "Permit",
    "Permits",
    "Priority",
    "RequestCost",
    "Ticket",
    "claim_of",
    "read_priority",
    "weigh",
]
