"""The audit chain, and the triggers that refuse to change it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_SQLITE = """
CREATE TRIGGER dabom_audit_no_{what} BEFORE {what} ON dabom_audit
BEGIN SELECT RAISE(ABORT, 'dabom_audit is append-only'); END
"""
_POSTGRESQL_FUNCTION = """
CREATE FUNCTION dabom_audit_refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'dabom_audit is append-only'; END $$
"""
_POSTGRESQL = """
CREATE TRIGGER dabom_audit_no_{what} BEFORE {what} ON dabom_audit
FOR EACH STATEMENT EXECUTE FUNCTION dabom_audit_refuse()
"""


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "dabom_audit",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False
        ),
        sa.Column("previous", sa.LargeBinary(32), nullable=False),
        sa.Column("hash", sa.LargeBinary(32), nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(_POSTGRESQL_FUNCTION)
        for what in ("UPDATE", "DELETE", "TRUNCATE"):
            op.execute(_POSTGRESQL.format(what=what))
    else:
        for what in ("UPDATE", "DELETE"):
            op.execute(_SQLITE.format(what=what))
