"""What must survive a restart: databases, their migrations, and the audit chain.

Importing this package imports SQLAlchemy; who does not use a database must not import it.
"""

from __future__ import annotations

from dabom.store.audit import AuditChain, Verification, open_audit, verify
from dabom.store.database import Database, open_database
from dabom.store.record import Head, Row
from dabom.store.verify import Fault, Verifier

__all__ = [
    "AuditChain",
    "Database",
    "Fault",
    "Head",
    "Row",
    "Verification",
    "Verifier",
    "open_audit",
    "open_database",
    "verify",
]
