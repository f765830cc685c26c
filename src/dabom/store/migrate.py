"""Brings the tables of a database up to date. The migrations ship in `dabom.store.migrations`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from dabom.errors import StoreError, StoreTooNew

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

VERSION_TABLE = "dabom_schema"


def upgrade(connection: Connection, database: str) -> None:
    """Run the migrations that are missing, inside the caller's transaction. Raises `StoreTooNew`."""
    config = _config()
    if _found(connection, config, database) != ScriptDirectory.from_config(config).get_current_head():
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def check(connection: Connection, database: str) -> None:
    """Raises `StoreError` unless the tables are those that this Dabom reads."""
    config = _config()
    found, wanted = (
        _found(connection, config, database),
        ScriptDirectory.from_config(config).get_current_head(),
    )
    if found is None:
        raise StoreError(f"{database}: nothing of Dabom is in it; is it the right database?")
    if found != wanted:
        raise StoreError(
            f"{database}: its tables are of an older Dabom ({found}); start dabom serve with it once"
        )


def _found(connection: Connection, config: Config, database: str) -> str | None:
    """The revision of a database; None when it is new."""
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    found = context.get_current_revision()
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise StoreTooNew(f"{database}: its tables are of a newer Dabom ({found}); use that one")
    return found


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "dabom.store:migrations")
    return config
