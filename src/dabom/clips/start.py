"""Make a run, or take one up again."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from dabom import __version__
from dabom.clips.folder import add_controls, find_items
from dabom.store import Run

if TYPE_CHECKING:
    from pathlib import Path

    from dabom.clips.plan import RunSettings
    from dabom.store import Runs

KIND = "clips"


def start_run(runs: Runs, folder: Path, settings: RunSettings, server: str) -> Run:
    """A new run over every clip of a folder; it is there with all its items, or not at all.

    Raises InvalidMedia when there is no clip.
    """
    items = add_controls(find_items(folder), settings.controls, settings.every)
    run = Run(
        id=f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}",
        kind=KIND,
        created_at=time.time(),
        place=str(folder.absolute()),
        protocol=settings.protocol,
        model=settings.model,
        server=server,
        prompt_sha256=settings.prompt_sha256,
        schema_sha256=settings.schema_sha256,
        version=__version__,
        settings=settings.stored(),
    )
    runs.create(run, items)
    return run
