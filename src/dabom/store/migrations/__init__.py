"""One file per change of the tables; Alembic runs them in order."""
