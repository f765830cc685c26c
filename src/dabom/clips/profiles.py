"""Profiles: the size, rate and coding of the clips of a cut."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dabom.errors import ConfigError
from dabom.media.encoding import Coding
from dabom.media.shape import Shape

if TYPE_CHECKING:
    from dabom.media.recording import Recording, SoundTrack

_AAC_RATES = frozenset({8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000})
_SEED_RATE, _LEAST_SIDE = 48_000, 16


@dataclass(frozen=True)
class Profile:
    """One profile. Without a size, clips have the recording's own size, rate and sound."""

    name: str
    coding: Coding
    size: tuple[int, int] | None = None
    fps: int = 10
    rate: int = 16_000


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("lean", Coding(crf=25), (640, 360)),
        Profile("caption", Coding(crf=24), (1280, 720)),
        Profile("seed", Coding(bits=1_500_000)),
    )
}
"""`lean` for one look at a scene, `caption` to read small text, `seed` as large as the recording."""


def find_profile(name: str) -> Profile:
    """The profile of that name. Raises ConfigError."""
    found = PROFILES.get(name)
    if found is None:
        raise ConfigError(f"--profile {name}: unknown; one of {', '.join(PROFILES)}")
    return found


def shape_of(profile: Profile, recording: Recording, every_s: float, sound: SoundTrack | None) -> Shape:
    """What each clip holds: as many frames as begin in `every_s` seconds, as many samples as these last."""
    if profile.size is not None:
        fps = Fraction(profile.fps)
        return Shape(*profile.size, fps, _frames(fps, every_s), every_s, profile.rate, 1)
    fps = recording.fps.limit_denominator(1001) or Fraction(25)
    wide, high = recording.width or 640, recording.height or 360
    if recording.turns % 2:
        wide, high = high, wide
    aspect = recording.aspect if recording.turns % 2 == 0 else 1 / recording.aspect
    size = (max(_LEAST_SIDE, wide // 2 * 2), max(_LEAST_SIDE, high // 2 * 2))
    rate, channels = (sound.rate, sound.channels) if sound else (_SEED_RATE, 1)
    rate = rate if rate in _AAC_RATES else _SEED_RATE
    return Shape(*size, fps, _frames(fps, every_s), every_s, rate, min(2, max(1, channels)), True, aspect)


def _frames(fps: Fraction, every_s: float) -> int:
    return max(1, math.ceil(float(fps) * every_s - 1e-3))
