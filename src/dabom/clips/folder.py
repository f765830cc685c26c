"""The clips of a folder as items of a run: those of its manifests, and any other MP4 file in it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dabom.clips.manifest import read_manifest
from dabom.errors import InvalidMedia
from dabom.store import RunItem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from dabom.clips.manifest import Clip

_TREE = "clips"
"""The folder of the seed's tree below which the categories are: data/clips/{category}/{name}/."""
_KEPT = ("start_s", "end_s", "black", "silence", "freeze", "problems", "source", "profile", "tokens")


def find_items(folder: Path) -> list[RunItem]:
    """Every clip below `folder`, by path; controls that a manifest names as such are controls.

    Raises InvalidMedia when there is none, or a file cannot be read.
    """
    found = [_item(folder, path, clip) for path, clip in _files(folder)]
    if not found:
        raise InvalidMedia(f"{folder}: holds no clip; give a folder with MP4 files in it, at any depth")
    return list(_numbered(found))


def add_controls(items: Sequence[RunItem], kinds: Sequence[str], every: int) -> list[RunItem]:
    """The items, and after each `every`th clip its controls of these kinds, made when they are asked."""
    more = list[RunItem]()
    clips = 0
    for item in items:
        more.append(item)
        if item.control:
            continue
        if clips % every == 0:
            more += [_control(item, kind) for kind in kinds]
        clips += 1
    return list(_numbered(more))


def _control(item: RunItem, kind: str) -> RunItem:
    facts = {**item.facts, "made": True}
    return RunItem(
        0, f"{item.name}#{kind}", item.file, item.category, item.sha256, kind, item.name, facts=facts
    )


def _numbered(items: Sequence[RunItem]) -> Iterator[RunItem]:
    for position, item in enumerate(items):
        yield replace(item, position=position)


def _files(folder: Path) -> Iterator[tuple[Path, Clip | None]]:
    places = [folder, *sorted(path for path in folder.rglob("*") if path.is_dir())]
    for place in places:
        if any(part.startswith(".") for part in place.relative_to(folder).parts):
            continue
        listed = {clip.clip: clip for clip in read_manifest(place)}
        for path in sorted(place.glob("*.mp4")):
            if path.is_file() and not path.name.startswith("."):
                yield path, listed.get(path.name)


def _item(folder: Path, path: Path, clip: Clip | None) -> RunItem:
    file = path.relative_to(folder).as_posix()
    try:
        file.encode()
    except UnicodeEncodeError:
        raise InvalidMedia(f"{file!r}: the name of a clip must be UTF-8; rename it") from None
    name = file.removesuffix(".mp4")
    facts: dict[str, Any] = {"bytes": path.stat().st_size}
    control = origin = ""
    if clip is not None:
        facts |= {key: getattr(clip, key) for key in _KEPT}
        control, origin = clip.control, clip.origin.removesuffix(".mp4")
    sha256 = clip.sha256 if clip is not None else sha256_of(path)
    return RunItem(0, name, file, category_of(folder, path), sha256, control, origin, facts=facts)


def category_of(folder: Path, path: Path) -> str:
    """The folder below `clips` in the path, as in the seed's tree; else the first one below `folder`."""
    parts = path.absolute().parent.parts
    if _TREE in parts:
        below = parts[len(parts) - parts[::-1].index(_TREE) :]
        if below:
            return below[0]
    inner = path.relative_to(folder).parent.parts
    return inner[0] if inner else folder.absolute().name


def sha256_of(path: Path) -> str:
    """The hash of a file. Raises InvalidMedia."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidMedia(f"{path}: cannot be read ({error.strerror})") from None
