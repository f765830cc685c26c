"""The ASGI app in front of the upstreams: receive, read facts, choose, wait for a permit, relay, account."""

from dabom.gateway.account import Accounts, Log
from dabom.gateway.audit import Audit, AuditSettings
from dabom.gateway.exchange import ABORT, LOST
from dabom.gateway.gateway import Gateway
from dabom.gateway.keys import Keys, KeySettings, find_twins, hash_line, is_hash
from dabom.gateway.metrics import Metrics
from dabom.gateway.settings import Clocks, GatewaySettings, Key, Limits, UpstreamSettings

__all__ = [
    "ABORT",
    "LOST",
    "Accounts",
    "Audit",
    "AuditSettings",
    "Clocks",
    "Gateway",
    "GatewaySettings",
    "Key",
    "KeySettings",
    "Keys",
    "Limits",
    "Log",
    "Metrics",
    "UpstreamSettings",
    "find_twins",
    "hash_line",
    "is_hash",
]
