"""Whether an upstream is fit to be asked: what its answers tell, and what it says when it is probed.

Everything here is a value and a time in, and a value out. The breaker judges by real requests, the probes
by small ones; a target is fit when neither objects. A refusal for the sake of the request (400, 413) says
nothing against an upstream, nor does a probe that is slow while the upstream works.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from collections.abc import Callable

Probe = Literal["up", "down", "slow"]
_MAX_REST_S = 60.0
_MAX_DOUBLINGS = 6
_BELIEVED_S = 60.0
"""Whoever works and answers nothing at all for longer is not busy but stuck."""


class HealthSettings(BaseModel):
    """When an upstream is passed over, and when it is asked again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    breaker_failures: int = Field(5, ge=1, description="failed requests in a row that open the breaker")
    breaker_open_s: float = Field(
        5, gt=0, description="time that it stays open; doubled each time in a row, up to a minute"
    )
    probe_interval_s: float = Field(5, gt=0, description="time between two probes of a quiet upstream")
    probe_timeout_s: float = Field(3, gt=0, description="longest wait for the answer to a probe")
    probes_down: int = Field(3, ge=1, description="failed probes in a row after which it counts as down")
    probes_up: int = Field(2, ge=1, description="answered probes in a row after which it counts as up again")


class BreakerState(IntEnum):
    """The numbers are those of the metric `dabom_breaker_state`."""

    CLOSED, HALF_OPEN, OPEN = range(3)


@dataclass(frozen=True, slots=True)
class Breaker:
    """Closed: requests pass. Open: none should until `until`. Half-open: one at a time tries."""

    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    """In a row."""
    opened: int = 0
    """Times in a row, without a success between them."""
    until: float = 0.0
    trying: bool = False

    def at(self, now: float) -> Breaker:
        """The breaker at a time: one that has been open long enough is half-open."""
        if self.state is BreakerState.OPEN and now >= self.until:
            return replace(self, state=BreakerState.HALF_OPEN, trying=False)
        return self

    def allows(self, now: float) -> bool:
        """Whether a request may pass."""
        breaker = self.at(now)
        return breaker.state is BreakerState.CLOSED or (
            breaker.state is BreakerState.HALF_OPEN and not breaker.trying
        )

    def began(self, now: float) -> Breaker:
        """A request is sent."""
        breaker = self.at(now)
        return replace(breaker, trying=True) if breaker.state is BreakerState.HALF_OPEN else breaker

    def succeeded(self) -> Breaker:
        """A request has been answered."""
        return self if self.state is BreakerState.CLOSED and not self.failures else Breaker()

    def failed(self, now: float, settings: HealthSettings) -> Breaker:
        """A request has failed, by the fault of the upstream."""
        breaker = self.at(now)
        failures = breaker.failures + 1
        if breaker.state is BreakerState.OPEN:
            return breaker  # it was sent before the breaker opened, or as the last resort
        if breaker.state is BreakerState.CLOSED and failures < settings.breaker_failures:
            return replace(breaker, failures=failures)
        pause_s = min(_MAX_REST_S, settings.breaker_open_s * 2 ** min(breaker.opened, _MAX_DOUBLINGS))
        return Breaker(BreakerState.OPEN, failures, breaker.opened + 1, now + pause_s)

    def left(self) -> Breaker:
        """A request has ended and tells nothing: its client is gone, or it was refused for its own sake."""
        return replace(self, trying=False) if self.trying else self


@dataclass(frozen=True, slots=True)
class Probes:
    """Up or down, and how many probes in a row have said the contrary."""

    up: bool = True
    against: int = 0

    def saw(self, probe: Probe, settings: HealthSettings, *, busy: bool) -> Probes:
        """One more probe. `busy`: requests were running, so that slowness is no sign of anything."""
        if probe == "slow" and busy:
            return self
        if (probe == "up") is self.up:
            return self if not self.against else Probes(self.up)
        against = self.against + 1
        if against < (settings.probes_down if self.up else settings.probes_up):
            return Probes(self.up, against)
        return Probes(not self.up)


class Health:
    """The health of one upstream. `changed` is told when the breaker comes to another state."""

    def __init__(
        self, settings: HealthSettings, changed: Callable[[BreakerState], None] = lambda _: None
    ) -> None:
        self.settings = settings
        self.breaker = Breaker()
        self.probes = Probes()
        self.rests_until = 0.0
        self.answered_at = float("-inf")
        """When it last answered a request or a probe."""
        self._silent_since: float | None = None
        """When the first request was sent that came behind its last answer."""
        self._changed = changed

    def fit(self, now: float) -> bool:
        """Whether it should be asked rather than others."""
        return self.probes.up and now >= self.rests_until and self.breaker.allows(now)

    def state(self, now: float) -> BreakerState:
        """The state of the breaker."""
        return self.breaker.at(now).state

    def began(self, now: float) -> None:
        """A request is sent."""
        if self._silent_since is None:
            self._silent_since = now
        if self.breaker.state is not BreakerState.CLOSED:
            self._set(self.breaker.began(now))

    def succeeded(self, now: float) -> None:
        """It has answered, be it with a refusal for the sake of the request."""
        self.answered_at, self._silent_since = now, None
        self.rests_until = 0.0
        if not self.probes.up or self.probes.against:
            self.probes = Probes()
        self._set(self.breaker.succeeded())

    def failed(self, now: float) -> None:
        """It could not be reached, broke off, stayed silent, or answered 500, 502 or 504."""
        self._set(self.breaker.failed(now, self.settings))

    def overloaded(self, now: float, seconds: float) -> None:
        """It has answered 429 or 503: it works, and wants to be left alone for a while."""
        self.answered_at, self._silent_since = now, None
        self.rests_until = max(self.rests_until, now + min(seconds, _MAX_REST_S))
        self._set(self.breaker.left())

    def left(self) -> None:
        """The request has told nothing."""
        self._set(self.breaker.left())

    def probed(self, probe: Probe, now: float, *, busy: bool) -> None:
        """A probe has come back, or has not. `busy`: requests are running."""
        if probe == "up":
            self.answered_at, self._silent_since = now, None
        stuck = self._silent_since is not None and now - self._silent_since > _BELIEVED_S
        self.probes = self.probes.saw(probe, self.settings, busy=busy and not stuck)

    def _set(self, breaker: Breaker) -> None:
        before, self.breaker = self.breaker.state, breaker
        if breaker.state is not before:
            self._changed(breaker.state)
