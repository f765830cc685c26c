"""Runs of workflows, their items, and every attempt at an item."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "dabom_runs",
        sa.Column("id", sa.String(40), primary_key=True),
        *(sa.Column(name, sa.String(20), nullable=False) for name in ("kind", "state")),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("place", "model", "server")),
        *(sa.Column(name, sa.String(40), nullable=False) for name in ("protocol", "version")),
        *(sa.Column(name, sa.String(64), nullable=False) for name in ("prompt_sha256", "schema_sha256")),
        sa.Column("settings", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "dabom_items",
        sa.Column("run", sa.String(40), sa.ForeignKey("dabom_runs.id"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("name", "file", "category", "origin")),
        sa.Column("sha256", sa.String(64), nullable=False),
        *(sa.Column(name, sa.String(20), nullable=False) for name in ("control", "state")),
        sa.Column("facts", sa.LargeBinary, nullable=False),
        sa.Column("code", sa.String(80), nullable=False),
        sa.Column("attempt", sa.Integer),
        sa.UniqueConstraint("run", "name", name="dabom_items_name"),
    )
    op.create_table(
        "dabom_attempts",
        sa.Column("run", sa.String(40), primary_key=True),
        *(
            sa.Column(name, sa.Integer, primary_key=True, autoincrement=False)
            for name in ("position", "number")
        ),
        *(sa.Column(name, sa.Float, nullable=False) for name in ("started_at", "elapsed_ms")),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("code", sa.String(80), nullable=False),
        *(
            sa.Column(name, sa.LargeBinary, nullable=False)
            for name in ("codes", "raw", "text", "usage", "asked")
        ),
        sa.ForeignKeyConstraint(["run", "position"], ["dabom_items.run", "dabom_items.position"]),
    )
