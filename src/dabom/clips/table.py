"""The table of a tree of clips: a row for each folder, and the sum."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dabom.clips.describe import describe
from dabom.clips.manifest import MANIFEST, Clip, read_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One folder of clips. `resolution` and `fps` are those of most clips; `problems` counts by code."""

    category: str
    name: str
    clips: int
    resolution: str
    fps: float
    mean_bytes: int
    problems: dict[str, int]


def read_rows(root: Path) -> list[Row]:
    """A row for every folder below `root` that holds clips, or for `root` itself, by name.

    The category is the folder above a folder of clips, as in `clips/{category}/{name}/`. Clips without a
    line in a manifest are read. Raises InvalidMedia.
    """
    found = {path.parent for path in root.rglob("*.mp4") if not path.name.startswith(".")}
    found |= {path.parent for path in root.rglob(MANIFEST)}
    rows = []
    for folder in sorted(found):
        clips = clips_in(folder)
        if clips:
            category = folder.parent.name if folder != root else ""
            rows.append(row_of(category, folder.name, clips))
    return rows


def clips_in(folder: Path) -> list[Clip]:
    """The clips of one folder, by name, whether a manifest lists them or not. Raises InvalidMedia."""
    listed = {clip.clip: clip for clip in read_manifest(folder)}
    names = sorted(path.name for path in folder.glob("*.mp4") if not path.name.startswith("."))
    return [listed.get(name) or describe(folder / name) for name in names]


def row_of(category: str, name: str, clips: Sequence[Clip]) -> Row:
    """The row of these clips, at least one."""
    sizes = Counter(f"{clip.width}×{clip.height}" for clip in clips)
    rates = Counter(round(clip.fps, 2) for clip in clips)
    problems = Counter(code for clip in clips for code in clip.problems)
    mean = round(sum(clip.bytes for clip in clips) / len(clips))
    return Row(
        category,
        name,
        len(clips),
        sizes.most_common(1)[0][0],
        rates.most_common(1)[0][0],
        mean,
        dict(sorted(problems.items())),
    )
