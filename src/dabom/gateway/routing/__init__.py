"""Which targets a request may go to, and in which order: pure decisions."""

from dabom.gateway.routing.choose import Decision, Reason, Steps, choose_route, model_names, names_of
from dabom.gateway.routing.need import AUTO, Need, Target, configured_targets, target_name
from dabom.gateway.routing.order import TargetState, affinity_key, order_targets

__all__ = [
    "AUTO",
    "Decision",
    "Need",
    "Reason",
    "Steps",
    "Target",
    "TargetState",
    "affinity_key",
    "choose_route",
    "configured_targets",
    "model_names",
    "names_of",
    "order_targets",
    "target_name",
]
