"""Connects the gateway's audit with the database that the settings name."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from dabom.errors import ConfigError, StoreError, StoreTooNew
from dabom.gateway import Audit

if TYPE_CHECKING:
    from dabom.gateway import AuditSettings, Metrics
    from dabom.gateway.audit import Chain


def build_audit(settings: AuditSettings, metrics: Metrics) -> Audit | None:
    """The audit, at work; None when no database is named.

    Raises `ConfigError` when the database cannot be opened and nothing may be served without it, and when it
    never could be.
    """
    if settings.database is None:
        return None
    from dabom import store  # SQLAlchemy, which a gateway without an audit does not load

    text = settings.database.get_secret_value()
    opened: list[Chain] = []
    try:
        opened.append(store.open_audit(text))
    except StoreError as error:
        if settings.on_failure == "refuse" or isinstance(error, StoreTooNew):
            raise ConfigError(f"audit.database cannot be opened: {error.message}") from None

    def open_chain() -> Chain:
        return opened.pop() if opened else store.open_audit(text)

    audit = Audit(settings, metrics, settings.gateway or socket.gethostname(), open_chain)
    audit.start()
    return audit
