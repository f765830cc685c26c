"""The manifest line of a finished clip, read back from its file as a model server would read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dabom.clips.manifest import Clip
from dabom.clips.windows import read_name
from dabom.errors import InvalidMedia
from dabom.families import FAMILIES, Options, VideoFacts
from dabom.media import FileSource, read_facts
from dabom.media.measuring import Seen, digests, measure

if TYPE_CHECKING:
    from pathlib import Path

    from dabom.media import MediaFacts

TOKENS_FPS = 2.0
"""Frames a second that the tokens of a manifest stand for, vLLM's own default."""


def describe(path: Path, name: str | None = None, seen: Seen | None = None) -> Clip:
    """The line of the clip at `path`, which is (or will be) called `name`.

    Its times come from the name. `seen` spares the decoding when its shares are known. Raises InvalidMedia.
    """
    try:
        with path.open("rb") as file:
            facts = read_facts(FileSource(file))
    except OSError as fault:
        raise InvalidMedia(f"{path}: cannot be read ({fault.strerror})") from None
    if facts.kind != "video" or facts.problem or not facts.frames:
        raise InvalidMedia(f"{path}: is no clip with a picture ({facts.problem or facts.kind})")
    sums = digests(path)
    found = name or path.name
    start_s, end_s = read_name(found.removesuffix(".mp4")) or (0.0, round(facts.seconds, 3))
    shares = seen or measure(path)
    return Clip(
        clip=found,
        start_s=start_s,
        end_s=end_s,
        frames=facts.frames,
        fps=facts.fps,
        width=facts.upright[0],
        height=facts.upright[1],
        samples=facts.audio_samples,
        sample_rate=facts.audio_rate,
        bytes=path.stat().st_size,
        sha256=sums.file,
        video_sha256=sums.video,
        audio_sha256=sums.audio,
        tokens=predicted(facts),
        black=shares.black,
        silence=shares.silence,
        freeze=shares.freeze,
        problems=() if facts.audio_samples else ("no_sound_track",),
    )


def predicted(facts: MediaFacts) -> dict[str, dict[str, int]]:
    """By family, the `multimodal_tokens` that vLLM reports; families that would refuse are left out."""
    width, height = facts.upright
    clip = VideoFacts(width, height, facts.frames, facts.fps, facts.audio_samples or None, facts.audio_rate)
    found: dict[str, dict[str, int]] = {}
    for family in FAMILIES.values():
        hears = family.hearing is not None
        cost = family.video(clip, Options(TOKENS_FPS, TOKENS_FPS, use_audio_in_video=hears))
        if cost.refusal is None:
            found[family.name] = {str(kind): count for kind, count in cost.tokens.items()}
    return found
