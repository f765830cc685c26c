"""The tables as SQLAlchemy sees them; the migrations make them."""

from __future__ import annotations

import sqlalchemy as sa

METADATA = sa.MetaData()

AUDIT = sa.Table(
    "dabom_audit",
    METADATA,
    # in SQLite the row id itself, which can be nothing but a whole number
    sa.Column(
        "seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False
    ),
    sa.Column("previous", sa.LargeBinary(32), nullable=False),
    sa.Column("hash", sa.LargeBinary(32), nullable=False),
    # bytes, not text: no database may recode or normalise what was hashed
    sa.Column("record", sa.LargeBinary, nullable=False),
)
"""One chain. Nothing is ever changed or deleted in it; triggers refuse both."""
