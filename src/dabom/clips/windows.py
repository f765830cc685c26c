"""Which windows a cut has, and what their clips are called."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from dabom.errors import ConfigError

_CLOCK = re.compile(r"(?:(?:(\d+):)?(\d{1,2}):)?(\d+(?:\.\d+)?)")
_NAME = re.compile(r"\d{4,}_(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$")
_MOST_CLIPS = 100_000
_SLACK_S = 0.05


@dataclass(frozen=True)
class Window:
    """One window: its number from 1, and where it is in the recording, in seconds."""

    number: int
    start_s: float
    end_s: float

    @property
    def name(self) -> str:
        """The clip's file name: `0001_0600-0606.mp4`."""
        return f"{self.number:04d}_{_stamp(self.start_s)}-{_stamp(self.end_s)}.mp4"


def read_clock(text: str) -> float:
    """Seconds of `90`, `1:30`, `1:02:03.5`. Raises ConfigError."""
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is no time; write seconds (600), 10:00 or 1:02:03")
    hours, minutes, seconds = found.groups()
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(seconds)


def plan_windows(
    start_s: float, end_s: float | None, every_s: float, duration_s: float | None
) -> list[Window]:
    """The windows of `every_s` seconds from `start_s` to `end_s`, as far as the recording reaches.

    A rest shorter than a window is left out, unless it is the recording that ends there. Raises ConfigError.
    """
    if every_s < 0.1:
        raise ConfigError(f"--every {every_s:g}: a clip lasts at least 0.1 s")
    if end_s is None and duration_s is None:
        raise ConfigError("the recording does not tell how long it is; say where to stop with --end")
    if end_s is not None and end_s <= start_s:
        raise ConfigError(f"--end {end_s:g} s is not after --start {start_s:g} s")
    if duration_s is not None and start_s >= duration_s:
        raise ConfigError(f"--start {start_s:g} s is after the end of the recording, {duration_s:.1f} s")
    asked = math.inf if end_s is None else math.floor((end_s - start_s) / every_s + 1e-6)
    there = math.inf if duration_s is None else math.ceil((duration_s - start_s - _SLACK_S) / every_s)
    count = min(asked, there)
    if count < 1:
        raise ConfigError(f"from {start_s:g} s on there is no room for a clip of {every_s:g} s")
    if count > _MOST_CLIPS:
        raise ConfigError(f"that would be {count:,} clips; at most {_MOST_CLIPS:,}: raise --every")
    places = (start_s + index * every_s for index in range(int(count)))
    return [Window(number, place, place + every_s) for number, place in enumerate(places, 1)]


def read_name(stem: str) -> tuple[float, float] | None:
    """Start and end in seconds, from a clip's name; None when it is named otherwise."""
    found = _NAME.search(stem)
    return (float(found[1]), float(found[2])) if found else None


def _stamp(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole:04d}" if abs(seconds - whole) < 5e-4 else f"{seconds:08.3f}"
