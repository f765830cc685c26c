"""What the commands about runs of clips say, Korean and English, and how they open a database."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dabom.cli.language import Language, tell
from dabom.errors import AskError, DabomError, StoreError
from dabom.store import open_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dabom.store import Runs

DATABASE = "var/clips.db"
"""Where runs are kept unless told otherwise; `var/` is kept out of the repository."""
INTERRUPTED = 130

CLAIMS = {"sees": ("보인다고 함", "claims to see"), "hears_speech": ("말이 들린다고 함", "claims speech")}


@contextmanager
def opened(database: str, language: Language, *, read_only: bool = False) -> Iterator[Runs]:
    """The runs of a database; what goes wrong is told on stderr and ends the command."""
    try:
        if database == DATABASE and not read_only:
            Path(database).parent.mkdir(parents=True, exist_ok=True)
        runs = open_runs(database, read_only=read_only)
        try:
            yield runs
        finally:
            runs.close()
    except DabomError as error:
        fail(error, language)
    except OSError as error:
        fail(StoreError(f"{error.filename}: {error.strerror}"), language)


def fail(error: DabomError, language: Language, url: str = "") -> None:
    """Tell it on stderr and end with 1, or with 2 when the command was used wrongly."""
    sys.stderr.write(tell(error, language, url) + "\n")
    used_rightly = isinstance(error, AskError | StoreError)
    raise typer.Exit(1 if used_rightly else 2) from None
