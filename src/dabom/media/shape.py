"""The shape of every clip of a cut."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Shape:
    """What every clip of a cut holds: one size, rate, and number of frames and of samples per channel."""

    width: int
    height: int
    fps: Fraction
    frames: int
    seconds: float
    rate: int
    channels: int
    native: bool = False
    aspect: Fraction = Fraction(1)
