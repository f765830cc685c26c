"""`manifest.jsonl`: one line for each clip of a folder, what it holds and what it costs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from dabom.errors import InvalidMedia

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MANIFEST = "manifest.jsonl"


@dataclass(frozen=True)
class Clip:
    """One clip.

    `clip` is the file's name in the folder of the manifest; `start_s` and `end_s` are seconds of the source.
    `frames`, `samples` (per channel) and the sides are what a decoder finds in the file, with the samples
    that the sound's coder adds at the end. The hashes of picture and sound are of their packets alone.
    `tokens` has, for each family, what vLLM reports as `multimodal_tokens` at 2 frames a second, with the
    sound where the family hears. `black` and `freeze` are shares of the frames, `silence` of the time.
    `problems` are codes (docs/clips.md). A control has its kind in `control` and the clip it was made from,
    by name, in `origin`.
    """

    clip: str
    start_s: float
    end_s: float
    frames: int
    fps: float
    width: int
    height: int
    samples: int
    sample_rate: int
    bytes: int
    sha256: str
    video_sha256: str
    audio_sha256: str
    tokens: dict[str, dict[str, int]] = field(default_factory=dict)
    black: float = 0.0
    silence: float = 0.0
    freeze: float = 0.0
    problems: tuple[str, ...] = ()
    source: str = ""
    profile: str = ""
    control: str = ""
    origin: str = ""


def read_manifest(folder: Path) -> list[Clip]:
    """The clips of a folder that are there, by name; empty without a manifest.

    Of two lines about one clip the later holds. A last line that a killed run left half written is passed
    over, as is a line whose file is not there. Raises InvalidMedia for any other line that is no clip.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")
    found: dict[str, Clip] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            clip = msgspec.json.decode(line, type=Clip)
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            if number == len(lines):
                break
            raise InvalidMedia(f"{path}: line {number} is no clip ({fault})") from None
        found[clip.clip] = clip
    return [found[name] for name in sorted(found) if (folder / name).is_file()]


def add_line(folder: Path, clip: Clip) -> None:
    """Write one more line, and see it on the disk before anything else is done.

    A last line that a killed run left half written is cut away first.
    """
    path = folder / MANIFEST
    if path.is_file() and not (content := path.read_bytes()).endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(clip) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def write_manifest(folder: Path, clips: Iterable[Clip]) -> None:
    """Replace the manifest by one line for each clip, by name, whole or not at all."""
    rows = sorted(clips, key=lambda clip: clip.clip)
    draft = folder / f".{MANIFEST}.part"
    draft.write_bytes(b"".join(msgspec.json.encode(clip) + b"\n" for clip in rows))
    draft.replace(folder / MANIFEST)
