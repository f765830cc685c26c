"""What must survive a restart: databases, their migrations, the audit chain, and runs with their results.

Importing this package imports SQLAlchemy; who does not use a database must not import it.
"""

from __future__ import annotations

from dabom.store.audit import AuditChain, Verification, open_audit, verify
from dabom.store.database import Database, open_database
from dabom.store.record import Head, Row
from dabom.store.runs import Attempt, Run, RunItem, Runs, open_runs
from dabom.store.verify import Fault, Verifier

__all__ = [
    "Attempt",
    "AuditChain",
    "Database",
    "Fault",
    "Head",
    "Row",
    "Run",
    "RunItem",
    "Runs",
    "Verification",
    "Verifier",
    "open_audit",
    "open_database",
    "open_runs",
    "verify",
]
