"""What `audit.database` may be: the path of a SQLite file, or a URL."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from dabom.errors import ConfigError

_POSTGRESQL = "postgresql+psycopg"
_DIALECTS = {"sqlite": "sqlite", "postgresql": _POSTGRESQL, "postgres": _POSTGRESQL, _POSTGRESQL: _POSTGRESQL}
_ALLOWED = "give the path of a SQLite file or postgresql://USER@HOST/DATABASE"


def parse(text: str) -> URL:
    """The address of a database. Raises `ConfigError`, which never shows the text: it may hold a password."""
    if "://" not in text:
        if not text.strip() or text == ":memory:":
            raise ConfigError(f"the database has no name; {_ALLOWED}")
        return URL.create("sqlite", database=str(Path(text).expanduser()))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise ConfigError(f"the URL of the database cannot be read; {_ALLOWED}") from None
    dialect = _DIALECTS.get(url.drivername)
    if dialect is None:
        raise ConfigError(f"the database is of the kind {url.drivername}; {_ALLOWED}")
    if dialect == "sqlite" and (not url.database or url.database == ":memory:"):
        raise ConfigError(f"a SQLite URL needs a file, as in sqlite:///audit.db; {_ALLOWED}")
    return url.set(drivername=dialect)


def name(url: URL) -> str:
    """How messages call a database: without user, password and options."""
    if url.drivername == "sqlite":
        return str(url.database)
    place = url.host or str(url.query.get("host", "")) or "the local socket"
    return f"PostgreSQL database {url.database or ''} at {place}{f':{url.port}' if url.port else ''}"
