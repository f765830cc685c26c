"""What Alembic executes to run migrations on the connection that it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import context

from dabom.store.migrate import VERSION_TABLE

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


def run(connection: Connection) -> None:
    """Run them inside the caller's transaction."""
    context.configure(connection=connection, version_table=VERSION_TABLE)
    with context.begin_transaction():
        context.run_migrations()


if __name__ != "dabom.store.migrations.env":  # Alembic executes this file under a name of its own
    run(context.config.attributes["connection"])
