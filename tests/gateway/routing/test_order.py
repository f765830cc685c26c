"""Which replica gets a request: load, the same media, health."""

from __future__ import annotations

import hashlib
from collections import Counter

from dabom.gateway.routing import TargetState, affinity_key, order_targets

MARGIN = 8192
STEPS = (("a", "b"), ("c",))


def states(**tokens: int) -> dict[str, TargetState]:
    return {name: TargetState(name, tokens=count) for name, count in tokens.items()}


def clip(number: int) -> tuple[str, int]:
    return hashlib.sha256(str(number).encode()).hexdigest()[:16], 1_250_000 + number % 7


def first(now: dict[str, TargetState], media: tuple[str, int], margin: int = MARGIN) -> str:
    return order_targets((tuple(now),), now, affinity_key([media]), margin)[0]


def test_the_least_busy_comes_first_and_the_name_breaks_ties() -> None:
    assert order_targets(STEPS, states(a=7, b=3, c=0), "", MARGIN) == ["b", "a", "c"]
    assert order_targets(STEPS, states(a=3, b=3, c=0), "", MARGIN) == ["a", "b", "c"]
    busy = states(a=0, b=0, c=0) | {"a": TargetState("a", requests=1)}
    assert order_targets(STEPS, busy, "", MARGIN) == ["b", "a", "c"]


def test_the_steps_keep_their_order_and_a_target_comes_once() -> None:
    steps = (("a",), ("b", "a"), ("c", "b"))
    assert order_targets(steps, states(a=9, b=5, c=0), "", MARGIN) == ["a", "b", "c"]


def test_the_sick_come_last_but_are_not_left_out() -> None:
    sick = {name: TargetState(name, healthy=name != "a") for name in "abc"}
    assert order_targets(STEPS, sick, "", MARGIN) == ["b", "c", "a"]
    gone = {name: TargetState(name, healthy=False) for name in "abc"}
    assert order_targets(STEPS, gone, "", MARGIN) == ["a", "b", "c"]


def test_the_same_clip_meets_the_same_replica() -> None:
    idle = states(a=0, b=0, c=0)
    for number in range(50):
        wanted = first(idle, clip(number))
        others = dict.fromkeys(idle, 4000) | {wanted: 4000 + MARGIN}
        assert first(states(**others), clip(number)) == wanted


def test_the_same_clip_yields_when_its_replica_is_too_busy() -> None:
    wanted = first(states(a=0, b=0, c=0), clip(1))
    busy = dict.fromkeys("abc", 1000) | {wanted: 1001 + MARGIN}
    assert first(states(**busy), clip(1)) != wanted
    assert first(states(**busy), clip(1), margin=MARGIN + 1) == wanted


def test_a_fixed_prompt_with_other_clips_spreads_evenly() -> None:
    example = ("0123456789abcdef", 90_000)
    idle = states(a=0, b=0, c=0, d=0)
    keys = [affinity_key([example, clip(number)]) for number in range(4000)]
    counts = Counter(order_targets((tuple(idle),), idle, key, MARGIN)[0] for key in keys)
    assert set(counts) == set(idle)
    assert max(counts.values()) < 1100  # 1,000 each, four standard deviations of 27


def test_a_growing_row_of_screenshots_stays_where_it_is() -> None:
    idle = states(a=0, b=0, c=0, d=0)
    screens = [clip(number * 7) for number in range(40)]  # all of one size
    chosen = {
        order_targets((tuple(idle),), idle, affinity_key(screens[:count]), MARGIN)[0]
        for count in range(1, 41)
    }
    assert len(chosen) == 1


def test_a_lost_replica_moves_its_own_clips_only() -> None:
    before, after = states(a=0, b=0, c=0, d=0), states(a=0, b=0, c=0)
    for number in range(300):
        was = first(before, clip(number))
        if was != "d":
            assert first(after, clip(number)) == was


def test_no_media_no_preference() -> None:
    assert affinity_key([]) == ""
