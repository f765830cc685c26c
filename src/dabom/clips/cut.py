"""Cutting: one decoding pass over a recording, one finished file for each window."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

from dabom.clips.describe import describe
from dabom.clips.draft import Draft, Pattern
from dabom.clips.manifest import Clip, add_line, read_manifest, write_manifest
from dabom.clips.profiles import PROFILES, Profile, shape_of
from dabom.clips.windows import Window, plan_windows
from dabom.errors import ConfigError, StoreError
from dabom.media.cutting import Shown, decode_windows
from dabom.media.recording import choose_sound, read_recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from dabom.media.cutting import Notes
    from dabom.media.recording import Recording, SoundTrack

_LOCK = ".cutting"
_PART = ".part"


@dataclass(frozen=True)
class Cut:
    """What is to be cut. `sound` is a language, a track's number from 1, or `none`."""

    source: Path
    out: Path
    start_s: float = 0.0
    end_s: float | None = None
    every_s: float = 6.0
    profile: Profile = PROFILES["lean"]
    sound: str = ""
    force: bool = False


@dataclass
class Outcome:
    """What a cut did: clips made now, clips kept from before, windows in which nothing could be decoded."""

    made: list[Clip] = field(default_factory=list)
    kept: list[Clip] = field(default_factory=list)
    empty: list[Window] = field(default_factory=list)

    @property
    def clips(self) -> list[Clip]:
        """All clips, by name."""
        return sorted([*self.made, *self.kept], key=lambda clip: clip.clip)


@dataclass(frozen=True)
class _Job:
    """What every window of one cut shares."""

    cut: Cut
    recording: Recording
    sound: SoundTrack | None
    pattern: Pattern
    tell: Callable[[Clip], None]


def cut_clips(cut: Cut, tell: Callable[[Clip], None] = lambda _clip: None) -> Outcome:
    """Cut a recording into clips in `cut.out`. `tell` is called with each clip as it is finished or found.

    A clip gets its name when it is whole; clips that are there already are kept, unless `cut.force`. Raises
    InvalidMedia, MediaUnsupported, ConfigError, and StoreError when a clip cannot be written.
    """
    recording = read_recording(cut.source)
    sound = choose_sound(cut.source, recording, cut.sound)
    windows = plan_windows(cut.start_s, cut.end_s, cut.every_s, recording.duration_s)
    shape = shape_of(cut.profile, recording, cut.every_s, sound)
    job = _Job(cut, recording, sound, Pattern(recording, cut.profile, shape, sound is not None), tell)
    with _locked(cut.out):
        before = {clip.clip: clip for clip in read_manifest(cut.out)}
        outcome = Outcome() if cut.force else _keep(job, windows, before)
        kept = {clip.clip for clip in outcome.kept}
        for stretch in _stretches(windows, kept):
            _cut_stretch(job, stretch, outcome)
        write_manifest(cut.out, {**before, **{clip.clip: clip for clip in outcome.clips}}.values())
    return outcome


def count_windows(cut: Cut) -> int:
    """How many clips a cut has, for a progress bar. Raises as `cut_clips` does."""
    recording = read_recording(cut.source)
    return len(plan_windows(cut.start_s, cut.end_s, cut.every_s, recording.duration_s))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Nobody else cuts into the folder; what a killed cut left half written is taken away."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"{folder}: another cut writes there; wait for it to end") from None
            for stale in folder.glob(f".*{_PART}"):
                stale.unlink(missing_ok=True)
            try:
                yield
            finally:
                (folder / _LOCK).unlink(missing_ok=True)
    except OSError as fault:
        raise StoreError(
            f"{folder}: cannot be written ({fault.strerror}); look at its room and rights"
        ) from None


def _keep(job: _Job, windows: Sequence[Window], before: dict[str, Clip]) -> Outcome:
    outcome, out = Outcome(), job.cut.out
    for window in windows:
        if not (out / window.name).is_file():
            continue
        clip = before.get(window.name) or describe(out / window.name)
        _same_shape(clip, job)
        outcome.kept.append(clip)
        job.tell(clip)
    return outcome


def _same_shape(clip: Clip, job: _Job) -> None:
    """Clips of one folder are alike, so that they can be compared."""
    shape, cut = job.pattern.shape, job.cut
    found = (clip.width, clip.height, clip.frames)
    if found != (shape.width, shape.height, shape.frames) or clip.source not in {"", cut.source.name}:
        raise ConfigError(
            f"{cut.out / clip.clip}: is there already, cut from {clip.source or 'elsewhere'} at "
            f"{clip.width}x{clip.height} with {clip.frames} frames; this cut makes {shape.width}x"
            f"{shape.height} with {shape.frames} from {cut.source.name}: choose another folder, or --force"
        )


def _stretches(windows: Sequence[Window], kept: set[str]) -> list[list[Window]]:
    """Windows that are to be made, in unbroken runs: each is one pass."""
    runs = groupby(windows, key=lambda window: window.name in kept)
    return [list(run) for is_kept, run in runs if not is_kept]


def _cut_stretch(job: _Job, windows: list[Window], outcome: Outcome) -> None:
    starts = [window.start_s for window in windows]
    notes, events = decode_windows(job.cut.source, job.recording, job.sound, job.pattern.shape, starts)
    drafts: dict[int, Draft] = {}
    done: set[int] = set()

    def finish(index: int) -> None:
        clip = _finish(job, windows[index], drafts[index], _problems(job, notes, index))
        del drafts[index]
        done.add(index)
        outcome.made.append(clip)
        job.tell(clip)

    try:
        for event in events:
            index = event.window
            if index not in drafts:
                drafts[index] = Draft(job.cut.out / f".{windows[index].name}{_PART}", job.pattern)
            if isinstance(event, Shown):
                drafts[index].picture(event.frame)
            else:
                drafts[index].sound(event)
            if drafts[index].whole:
                finish(index)
        for index in sorted(drafts):
            if drafts[index].has_something:
                finish(index)
    finally:
        events.close()
        for draft in drafts.values():
            draft.abandon()
    if job.cut.end_s is not None:  # else nobody asked for more than there is
        outcome.empty.extend(window for index, window in enumerate(windows) if index not in done)


def _problems(job: _Job, notes: Notes, index: int) -> list[str]:
    found = {
        "damaged": index in notes.damaged,
        "gap": index in notes.grid.late | notes.grid.held,
        "hdr_unmapped": job.recording.hdr,
    }
    return [code for code, is_so in found.items() if is_so]


def _finish(job: _Job, window: Window, draft: Draft, problems: list[str]) -> Clip:
    """The line of the manifest comes first, then the name: a clip that has its name has its line."""
    cut, shape = job.cut, job.pattern.shape
    seen, more = draft.finish()
    clip = describe(draft.path, window.name, seen)
    if clip.frames != shape.frames or clip.samples < round(shape.seconds * shape.rate):
        raise StoreError(
            f"{cut.out / window.name}: has {clip.frames} frames and {clip.samples} samples instead of "
            f"{shape.frames} and {round(shape.seconds * shape.rate)}; look at the disk"
        )
    clip = replace(
        clip,
        start_s=round(window.start_s, 6),
        end_s=round(window.end_s, 6),
        problems=tuple(sorted({*more, *problems})),
        source=cut.source.name,
        profile=cut.profile.name,
    )
    add_line(cut.out, clip)
    draft.path.replace(cut.out / window.name)
    return clip
