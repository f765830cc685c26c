"""Controls of clips: what a model says of a clip whose picture or sound was taken away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, get_args

from dabom.clips.describe import describe
from dabom.clips.manifest import Clip, add_line, read_manifest
from dabom.errors import ConfigError, InvalidMedia, StoreError
from dabom.media.controls import ControlKind, write_control

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS: tuple[ControlKind, ...] = get_args(ControlKind)


def make_control(
    clip: Path, out: Path, kind: ControlKind, sound_of: Path | None = None, *, force: bool = False
) -> Clip:
    """Make the control `out / clip.name`, and its line in the manifest of `out`.

    One that is there already is kept, unless `force`. Raises InvalidMedia, ConfigError when another kind of
    clip has the name, and StoreError.
    """
    target = out / clip.name
    if target.resolve() == clip.resolve():
        raise ConfigError(f"{out}: is the folder of the clip itself; give another one for its control")
    if target.exists() and not force:
        found = next((line for line in read_manifest(out) if line.clip == clip.name), None)
        if found is None or (found.control, found.origin) != (kind, clip.name):
            raise ConfigError(
                f"{target}: is there already and no {kind} of {clip}; another folder, or --force"
            )
        return found
    origin = next((line for line in read_manifest(clip.parent) if line.clip == clip.name), None)
    origin = origin or describe(clip)
    draft = out / f".{clip.name}.part"
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_control(clip, draft, kind, sound_of)
        line = _line(draft, kind, origin)
        add_line(out, line)
        draft.replace(target)
    except OSError as fault:
        raise StoreError(
            f"{target}: cannot be written ({fault.strerror}); look at its room and rights"
        ) from None
    finally:
        draft.unlink(missing_ok=True)
    return line


def control_bytes(content: bytes, kind: ControlKind, sound_of: bytes | None = None) -> bytes:
    """The control of a clip in memory; nothing stays on the disk. Raises as `make_control` does."""
    with TemporaryDirectory(prefix="dabom-") as folder:
        source, target, other = (Path(folder) / name for name in ("clip.mp4", "control.mp4", "other.mp4"))
        source.write_bytes(content)
        if sound_of is not None:
            other.write_bytes(sound_of)
        write_control(source, target, kind, other if sound_of is not None else None)
        return target.read_bytes()


def choose_other(clip: Path, clips: Sequence[Path]) -> Path:
    """The clip whose sound a `swap-audio` takes: the one half way round, so that it is far in time."""
    if len(clips) < 2 or clip not in clips:
        raise ConfigError(f"{clip}: stands alone; name the clip whose sound it gets with --sound-of")
    return clips[(clips.index(clip) + len(clips) // 2) % len(clips)]


def _line(draft: Path, kind: ControlKind, origin: Clip) -> Clip:
    made = describe(draft, origin.clip)
    if made.tokens != origin.tokens:
        raise InvalidMedia(
            f"{origin.clip}: its {kind} would cost other tokens ({made.frames} frames and {made.samples} "
            f"samples, not {origin.frames} and {origin.samples}): answers could not be compared"
        )
    return replace(
        made,
        start_s=origin.start_s,
        end_s=origin.end_s,
        problems=origin.problems,
        source=origin.source,
        profile=origin.profile,
        control=kind,
        origin=origin.clip,
    )
