"""A token bucket as a value: what may be taken now, how long to wait for the rest. The time is passed in."""

from __future__ import annotations

from dataclasses import dataclass, replace

_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """Holds at most what one minute brings, and starts full. `at` is the time, in seconds, of `level`."""

    per_minute: float
    level: float
    at: float

    @classmethod
    def full(cls, per_minute: float, now: float) -> Bucket:
        """As it is at the start."""
        return cls(per_minute, per_minute, now)

    def after(self, now: float) -> Bucket:
        """What has flowed in until `now`; a clock that goes back changes nothing."""
        gained = max(0.0, now - self.at) * self.per_minute / _MINUTE_S
        return replace(self, level=min(self.per_minute, self.level + gained), at=max(self.at, now))

    def wait_s(self, cost: float, now: float) -> float:
        """Seconds until `cost` can be taken; 0: now. What is more than the bucket holds needs a full one."""
        missing = min(cost, self.per_minute) - self.after(now).level
        return max(0.0, missing * _MINUTE_S / self.per_minute)

    def take(self, cost: float, now: float) -> Bucket:
        """Without `cost`; the level may fall below zero, and then has to rise again before anyone takes."""
        filled = self.after(now)
        return replace(filled, level=filled.level - cost)

    def give(self, amount: float, now: float) -> Bucket:
        """With `amount` of what was taken back; a negative one is taken after the fact."""
        filled = self.after(now)
        return replace(filled, level=min(self.per_minute, filled.level + amount))
