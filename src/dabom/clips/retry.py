"""Whether a clip is asked about once more: a rule for each code. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from dabom.clips import checks

CONNECTION = "connection"
"""The batch broke off before the item's line came."""
UNREADABLE = "unreadable"
CHANGED = "clip_changed"


@dataclass(frozen=True, slots=True)
class Rule:
    """At most so many attempts, and how the next one differs from the last.

    `longer` doubles `max_tokens`; the seed is always another one: the same would give the same answer.
    """

    attempts: int
    longer: bool = False
    wait_s: float = 0.0


ONCE = Rule(1)
RULES = {
    checks.EMPTY: Rule(3),
    checks.CUT: Rule(2, longer=True),
    checks.INVALID: Rule(3),
    checks.REPEATED: Rule(3),
    checks.FOREIGN: Rule(2),
    # how the server counts does not depend on the seed: asking again would cost the same and prove the same
    checks.SOUND_MISSING: ONCE,
    checks.SOUND_UNLIKE: ONCE,
    UNREADABLE: ONCE,
    CHANGED: ONCE,
    CONNECTION: Rule(4, wait_s=1.0),
}
BUSY = Rule(6, wait_s=2.0)
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
MOST_WAIT_S = 20.0
"""Shorter than the silence after which a gateway takes a client that uploads for dead (30 s)."""


def rule_of(code: str, status: int) -> Rule:
    """The rule of a failed attempt: by its code, else by its HTTP status. Any other 4xx is final."""
    return RULES.get(code) or (BUSY if status in _BUSY else ONCE)


def is_busy(code: str, status: int) -> bool:
    """The server could not serve now, whatever the item was."""
    return bool(code) and rule_of(code, status) is BUSY


def another(rule: Rule, attempts: int) -> bool:
    """Whether an item that has been tried so often is tried again."""
    return attempts < rule.attempts


def wait_s(rule: Rule, attempts: int, asked_s: float | None = None) -> float:
    """Seconds before the next attempt: what the server asked for, else twice as long each time."""
    if asked_s is not None:
        return min(asked_s, MOST_WAIT_S)
    return min(rule.wait_s * 2.0 ** (attempts - 1), MOST_WAIT_S)


def next_seed(seed: int, attempts: int) -> int:
    """The seed after so many attempts."""
    return seed + attempts


def next_max_tokens(max_tokens: int, rule: Rule | None) -> int:
    """The bound of the next answer."""
    return max_tokens * 2 if rule is not None and rule.longer else max_tokens
