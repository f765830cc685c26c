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

RUNS = sa.Table(
    "dabom_runs",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("ended_at", sa.Float),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("place", sa.Text, nullable=False),
    sa.Column("protocol", sa.String(40), nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("server", sa.Text, nullable=False),
    sa.Column("prompt_sha256", sa.String(64), nullable=False),
    sa.Column("schema_sha256", sa.String(64), nullable=False),
    sa.Column("version", sa.String(40), nullable=False),
    sa.Column("settings", sa.LargeBinary, nullable=False),
)
"""One execution of a workflow. Times are seconds since 1970, UTC; `settings` is JSON."""

ITEMS = sa.Table(
    "dabom_items",
    METADATA,
    sa.Column("run", sa.ForeignKey("dabom_runs.id"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("file", sa.Text, nullable=False),
    sa.Column("category", sa.Text, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("control", sa.String(20), nullable=False),
    sa.Column("origin", sa.Text, nullable=False),
    sa.Column("facts", sa.LargeBinary, nullable=False),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("code", sa.String(80), nullable=False),
    sa.Column("attempt", sa.Integer),
    sa.UniqueConstraint("run", "name", name="dabom_items_name"),
)
"""What a run asks about. `attempt` is the one whose answer counts; it is set once, with the state."""

ATTEMPTS = sa.Table(
    "dabom_attempts",
    METADATA,
    sa.Column("run", sa.String(40), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("started_at", sa.Float, nullable=False),
    sa.Column("elapsed_ms", sa.Float, nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("code", sa.String(80), nullable=False),
    # bytes, not text: what a model answers may hold characters that PostgreSQL's text cannot
    sa.Column("codes", sa.LargeBinary, nullable=False),
    sa.Column("raw", sa.LargeBinary, nullable=False),
    sa.Column("text", sa.LargeBinary, nullable=False),
    sa.Column("usage", sa.LargeBinary, nullable=False),
    sa.Column("asked", sa.LargeBinary, nullable=False),
    sa.ForeignKeyConstraint(["run", "position"], ["dabom_items.run", "dabom_items.position"]),
)
"""One request about one item and what came back; `codes`, `usage` and `asked` are JSON."""
