"""Which frame belongs to which place of a time grid. Pure: times in, places out."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

ROUNDING_S = 0.0006
"""A container that rounds times to milliseconds is off by half of one."""
_TICK_S = 0.0002
"""How far a time may be off where the rate is sure: a tick of the container's clock."""
_HOLE_S = 1.0


class Place(NamedTuple):
    """Picture `number` of window `window`."""

    window: int
    number: int


@dataclass
class Grid:
    """The places of `frames` pictures, `fps` a second, in each window that begins at one of `starts`.

    A place gets the last frame whose time is not after its own, whatever the index of that frame is, so that
    a varying rate and lost frames move nothing. With `native`, the rate is the recording's own: a window
    then begins with the frame that shows at its start and takes those that follow, and rounding of times
    neither doubles nor drops one. `late`, `held` and `short` collect windows whose first picture came too
    late, that hold a frame over a hole of the recording, or that end before their last picture.
    """

    starts: Sequence[float]
    fps: Fraction
    frames: int
    native: bool = False
    late: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    short: set[int] = field(default_factory=set)
    _window: int = 0
    _number: int = 0
    _first_s: float | None = None

    @property
    def done(self) -> bool:
        """Every place has its frame."""
        return self._window >= len(self.starts)

    @property
    def window(self) -> int:
        """The window whose places come next."""
        return self._window

    def before(self, next_s: float, shown_s: float | None, lasts_s: float) -> list[Place]:
        """The places before `next_s`, for the frame shown since `shown_s` and meant to last `lasts_s`.

        None for `shown_s`: there is no frame before; the one at `next_s` has to stand in.
        """
        hole = shown_s is not None and next_s - shown_s > max(_HOLE_S, 1.5 * lasts_s)
        found: list[Place] = []
        while not self.done and self._due(shown_s) < next_s - ROUNDING_S:
            if shown_s is None:
                self.late.add(self._window)
            elif hole and self._due(shown_s) > shown_s + lasts_s + 1 / self.fps:
                self.held.add(self._window)
            if self._number == 0:
                self._first_s = shown_s
            found.append(Place(self._window, self._number))
            self._step()
        return found

    def at_end(self, shown_s: float, lasts_s: float) -> list[Place]:
        """The places that the last frame of the recording fills; what is after them stays empty."""
        found = self.before(shown_s + lasts_s, shown_s, lasts_s)
        if not self.done and self._number:
            self.short.add(self._window)
        return found

    def wants(self, time_s: float, lasts_s: float) -> bool:
        """Some place lies where the frame of `time_s` shows, if it shows for `lasts_s`, which is sure."""
        begin = time_s - ROUNDING_S - _TICK_S
        end = time_s + lasts_s - ROUNDING_S + _TICK_S
        window = max(0, bisect_right(self.starts, begin) - 1)
        step = float(1 / self.fps)
        number = max(0, math.ceil((begin - self.starts[window]) / step))
        if number < self.frames:
            return self.starts[window] + number * step < end
        return window + 1 < len(self.starts) and self.starts[window + 1] < end

    def _due(self, shown_s: float | None) -> float:
        start, step = self.starts[self._window], float(1 / self.fps)
        if self.native and self._number and self._first_s is not None and start - self._first_s < step:
            return self._first_s + (self._number + 0.5) * step
        return start + self._number * step

    def _step(self) -> None:
        self._number += 1
        if self._number == self.frames:
            self._window, self._number, self._first_s = self._window + 1, 0, None
