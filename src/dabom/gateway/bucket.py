"""A token bucket as a value: what may be taken now, how long to wait for the rest. The time is passed in."""

from __future__ import annotations

from typing import NamedTuple

_MINUTE_S = 60.0


class Bucket(NamedTuple):
    """Holds at most what one minute brings, and starts full. `at` is the time, in seconds, of `level`."""

    per_minute: float
    level: float
    at: float

    @classmethod
    def full(cls, per_minute: float, now: float) -> Bucket:
        """As it is at the start."""
        return cls(per_minute, per_minute, now)

    def level_at(self, now: float) -> float:
        """With what has flowed in until `now`; a clock that goes back changes nothing."""
        gained = max(0.0, now - self.at) * self.per_minute / _MINUTE_S
        return min(self.per_minute, self.level + gained)

    def wait_s(self, cost: float, now: float) -> float:
        """Seconds until `cost` can be taken; 0: now. What is more than the bucket holds needs a full one."""
        missing = min(cost, self.per_minute) - self.level_at(now)
        return max(0.0, missing * _MINUTE_S / self.per_minute)

    def take(self, cost: float, now: float) -> Bucket:
        """Without `cost`; the level may fall below zero, and then has to rise again before anyone takes."""
        return Bucket(self.per_minute, self.level_at(now) - cost, max(self.at, now))

    def give(self, amount: float, now: float) -> Bucket:
        """With `amount` of what was taken back; a negative one is taken after the fact."""
        level = min(self.per_minute, self.level_at(now) + amount)
        return Bucket(self.per_minute, level, max(self.at, now))
