"""The end of a run's time: its media and its results are removed, and the audit chain says so."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dabom.clips.folder import sha256_of
from dabom.clips.manifest import MANIFEST, read_manifest, write_manifest
from dabom.clips.start import KIND
from dabom.errors import ConfigError, InvalidMedia, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dabom.store import Run, RunItem, Runs

_AGE = re.compile(r"(\d{1,5})([hdw])")
_SECONDS = {"h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True)
class Purged:
    """What was removed of a run, or would be.

    `kept` are files that a younger run asks about, `changed` those that are not the run's any more, and
    `missing` those that were gone. `skipped` says why a run was left as it is.
    """

    run: str
    created_at: float
    items: int
    media: tuple[Path, ...] = ()
    media_bytes: int = 0
    kept: int = 0
    changed: int = 0
    missing: int = 0
    skipped: str = ""


def read_age(text: str) -> int:
    """Seconds of an age such as 30d, 12h or 2w. Raises ConfigError."""
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"--older-than {text[:40]}: give hours, days or weeks, as in 12h, 30d, 2w")
    return int(found[1]) * _SECONDS[found[2]]


def report_path(run: Run) -> Path:
    """Where a run's report is written unless told otherwise: beside the clips, so that it can play them."""
    return Path(run.place) / f"report-{run.id}.html"


def purge(runs: Runs, before: float, now: float, *, dry_run: bool = False) -> list[Purged]:
    """Remove every run of clips that ended, or else began, before that time, with its media.

    Raises StoreError; what was purged until then is purged. A run that somebody works on is skipped.
    """
    known = [run for run in runs.all() if run.kind == KIND]
    old = [run for run in known if (run.ended_at or run.created_at) < before]
    young = {path for run in known if run not in old for path in _paths(run, runs.items(run.id))}
    return [_purge_one(runs, run, young, now, dry_run) for run in reversed(old)]


def _purge_one(runs: Runs, run: Run, young: set[Path], now: float, dry_run: bool) -> Purged:
    items = runs.items(run.id)
    found = _look(run, items, young)
    if dry_run:
        return found
    try:
        with runs.held(run.id):
            _remove((report_path(run), *found.media), Path(run.place))
            runs.erase(run.id, _record(run, items, found, now))
    except StoreError as error:
        if "another process" not in error.message:
            raise
        return Purged(run.id, run.created_at, len(items), skipped=error.message)
    return found


def _look(run: Run, items: Sequence[RunItem], young: set[Path]) -> Purged:
    media, size, kept, changed, missing = list[Path](), 0, 0, 0, 0
    hashes = {Path(run.place) / item.file: item.sha256 for item in items}
    for path, sha256 in hashes.items():
        if path in young:
            kept += 1
        elif not path.is_file():
            missing += 1
        elif _hash(path) != sha256:
            changed += 1
        else:
            media.append(path)
            size += path.stat().st_size
    return Purged(run.id, run.created_at, len(items), tuple(media), size, kept, changed, missing)


def _hash(path: Path) -> str:
    with suppress(InvalidMedia):
        return sha256_of(path)
    return ""


def _paths(run: Run, items: Iterable[RunItem]) -> set[Path]:
    return {Path(run.place) / item.file for item in items}


def _remove(media: Iterable[Path], place: Path) -> None:
    """The files, their lines in manifests, and the folders that are empty then."""
    folders = set[Path]()
    for path in media:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"{path}: cannot be removed ({error.strerror}); the run is kept") from None
        folders.add(path.parent)
    for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
        with suppress(InvalidMedia):  # a manifest that nobody can read is not ours to write anew
            _tidy_manifest(folder)
        for empty in (folder, *folder.parents):
            if not empty.is_relative_to(place) or (empty.is_dir() and any(empty.iterdir())):
                break
            with suppress(FileNotFoundError):
                empty.rmdir()


def _tidy_manifest(folder: Path) -> None:
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return
    if left := read_manifest(folder):
        write_manifest(folder, left)
    else:
        manifest.unlink()


def _record(run: Run, items: Sequence[RunItem], found: Purged, now: float) -> dict[str, Any]:
    """What the audit chain keeps: that it was, and that it is gone; nothing of what it said."""
    clips = hashlib.sha256("\n".join(sorted({item.sha256 for item in items})).encode()).hexdigest()
    return {
        "kind": "purge",
        "time": datetime.fromtimestamp(now, UTC).isoformat(),
        "workflow": run.kind,
        "run": run.id,
        "created": datetime.fromtimestamp(run.created_at, UTC).isoformat(),
        "model": run.model,
        "protocol": run.protocol,
        "prompt_sha256": run.prompt_sha256,
        "schema_sha256": run.schema_sha256,
        "items": len(items),
        "clips_sha256": clips,
        "media_removed": len(found.media),
        "media_bytes": found.media_bytes,
        "media_kept": found.kept,
        "media_changed": found.changed,
        "media_missing": found.missing,
    }
