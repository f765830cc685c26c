"""Where the clips of the check are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import dabom
from dabom.errors import ConfigError

MAX_CLIPS = 12
"""As many clips in a row as the batch step takes."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Clips in order, and the first one's control whose picture is black and whose sound is kept."""

    root: Path
    clips: tuple[Path, ...]
    black: Path | None

    @property
    def first(self) -> Path:
        """The clip that the black one was made from, so that both steps ask about the same sound."""
        if self.black is not None:
            tail = self.black.relative_to(self.root / "blackout")
            origin = self.root / "clips" / tail
            if origin in self.clips:
                return origin
        return self.clips[0]


def find_samples(given: Path | None = None) -> Samples:
    """The samples at `given`, else of this repository, else of the installed package.

    The layout is `clips/{category}/{name}/*.mp4` and `blackout/{category}/{name}/*.mp4`. Raises ConfigError.
    """
    package = Path(dabom.__file__).parent
    places = [given] if given is not None else [package.parents[1] / "samples", package / "samples"]
    for root in places:
        if (root / "clips").is_dir():
            return _read(root)
    looked = ", ".join(str(place) for place in places)
    raise ConfigError(
        f"no clips found; looked at {looked}; a folder with clips/**/*.mp4 is needed (--samples)"
    )


def _read(root: Path) -> Samples:
    clips = sorted((root / "clips").rglob("*.mp4"))
    if not clips:
        raise ConfigError(f"{root / 'clips'}: holds no .mp4 file; clips/CATEGORY/NAME/*.mp4 is expected")
    black = sorted((root / "blackout").rglob("*.mp4"))
    folder = clips[0].parent
    if black:
        folder = root / "clips" / black[0].parent.relative_to(root / "blackout")
    chosen = [clip for clip in clips if clip.parent == folder] or clips
    return Samples(root, tuple(chosen[:MAX_CLIPS]), black[0] if black else None)
