"""The order of the line: pure, with the time passed in."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dabom.gateway.admission import Claim, Line, Priority, Ticket
from dabom.gateway.admission.line import PASSES

_REALTIME, _NORMAL, _BATCH = Priority
_CLAIMS = st.builds(Claim, st.integers(0, 100), st.sampled_from(Priority), st.sampled_from("abc"))
_MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("join"), _CLAIMS),
        st.tuples(st.just("leave"), st.integers(0, 99)),
        st.tuples(st.just("end"), st.integers(0, 99)),
        st.tuples(st.just("wait"), st.integers(1, 20)),
    ),
    max_size=120,
)


def _line(limit: int = 1, budget: int | None = None, aging_s: float = 10) -> Line:
    return Line(limit, budget, 1000, aging_s)


def _order(line: Line, now: float = 0) -> list[object]:
    """Who is served, one after the other; the one permit is held now."""
    found = []
    while line.waiting:
        line.give_back(Claim(), now)
        ticket = line.next(now)
        assert ticket is not None
        found.append(ticket.who)
        line.tokens = 0
    return found


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 4), st.none() | st.integers(100, 250), _MOVES)
def test_any_sequence(limit: int, budget: int | None, moves: list[tuple[str, int | Claim]]) -> None:
    line, now = _line(limit, budget), 0.0
    waiting, running = list[Ticket](), list[Ticket]()
    for move, what in moves:
        if isinstance(what, Claim):
            waiting.append(line.join(what, now))
        elif move == "wait":
            now += what
        elif move == "leave" and waiting:
            assert line.leave(waiting.pop(what % len(waiting)))
        elif move == "end" and running:
            line.give_back(running.pop(what % len(running)).claim, now)
        while (ticket := line.next(now)) is not None:
            waiting.remove(ticket)
            running.append(ticket)
            assert not line.leave(ticket)
        assert (line.held, line.waiting) == (len(running), len(waiting))
        assert line.tokens == sum(ticket.claim.tokens for ticket in running)
        assert line.tokens_waiting == sum(ticket.claim.tokens for ticket in waiting)
        assert line.held <= limit
        assert budget is None or line.tokens <= budget
        assert running or not waiting, "all lies idle while someone waits"
        if budget is None and waiting:
            assert line.held == limit, "a permit lies idle"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 100), max_size=40))
def test_one_key_is_served_in_the_order_of_arrival(tokens: list[int]) -> None:
    line = _line()
    assert line.take(Claim())
    for number, count in enumerate(tokens):
        line.join(Claim(count), 0, number)
    assert _order(line) == list(range(len(tokens)))


@settings(max_examples=100, deadline=None)
@given(st.lists(_CLAIMS, min_size=1, max_size=60), st.integers(1, 3))
def test_all_are_served_in_the_end_whatever_comes_after_them(claims: list[Claim], limit: int) -> None:
    """For each one that is served, a new urgent one comes."""
    line, now, count = _line(limit, 100, aging_s=1), 0.0, len(claims)
    for number, claim in enumerate(claims):
        line.join(claim, now, number)
    running, left = list[Ticket](), set(range(count))
    for _ in range(40 * count + 100):
        while (ticket := line.next(now)) is not None:
            running.append(ticket)
            left.discard(ticket.who if isinstance(ticket.who, int) else -1)
        if not left:
            return
        now += 1
        line.give_back(running.pop(0).claim, now)
        line.join(Claim(40, _REALTIME, "urgent"), now)
    raise AssertionError(f"never served: {left}")


def test_priorities_go_in_their_order() -> None:
    line = _line()
    assert line.take(Claim())
    for name, priority in (("b", _BATCH), ("n", _NORMAL), ("r", _REALTIME), ("n2", _NORMAL)):
        line.join(Claim(1, priority), 0, name)
    assert _order(line) == ["r", "n", "n2", "b"]


def test_a_priority_that_has_aged_gets_one_permit_in_five() -> None:
    line = _line(aging_s=10)
    assert line.take(Claim())
    for number in range(12):
        line.join(Claim(1, _REALTIME), 0, number)
        line.join(Claim(1, _BATCH), 0, "batch")
    assert _order(line, now=9.9)[:12] == list(range(12)), "too early to age"
    line = _line(aging_s=10)
    assert line.take(Claim())
    for number in range(12):
        line.join(Claim(1, _REALTIME), 0, number)
        line.join(Claim(1, _BATCH), 0, "batch")
    now, found = 20.0, []
    for _ in range(11):
        line.give_back(Claim(), now)
        line.tokens = 0
        ticket = line.next(now)
        assert ticket is not None
        found.append(ticket.who)
        now += 10
    assert found == [0, 1, 2, 3, "batch", 4, 5, 6, 7, "batch", 8]
    assert found.index("batch") == PASSES


def test_a_new_key_does_not_stand_behind_all_of_a_busy_one() -> None:
    line = _line()
    assert line.take(Claim())
    for number in range(4):
        line.join(Claim(100, _NORMAL, "busy"), 0, number)
    line.join(Claim(100, _NORMAL, "new"), 0, "new")
    assert _order(line) == [0, "new", 1, 2, 3]


def test_keys_share_by_tokens_not_by_requests() -> None:
    line = _line()
    assert line.take(Claim())
    for _ in range(3):
        line.join(Claim(400, _NORMAL, "clips"), 0, "clip")
    for _ in range(12):
        line.join(Claim(100, _NORMAL, "texts"), 0, "text")
    order = _order(line)
    assert order[:10].count("clip") == 2
    assert order[:10].count("text") == 8


def test_who_gives_up_owes_nothing() -> None:
    line = _line()
    assert line.take(Claim())
    line.join(Claim(10, _NORMAL, "b"), 0, "b first")
    gone = line.join(Claim(10_000, _NORMAL, "a"), 0)
    assert line.leave(gone)
    assert not line.leave(gone)
    line.join(Claim(10, _NORMAL, "b"), 0, "b second")
    line.join(Claim(10, _NORMAL, "a"), 0, "a")
    assert _order(line) == ["b first", "a", "b second"]


def test_what_does_not_fit_is_passed_by_as_much_as_the_budget() -> None:
    line = _line(limit=10, budget=100)
    assert line.take(Claim(60))
    line.join(Claim(80), 0, "large")
    assert line.next(0) is None
    passed = 0
    for _ in range(20):
        line.join(Claim(30), 0, "small")
        if line.next(0) is None:
            break
        line.give_back(Claim(30), 0)
        passed += 30
    assert passed == 90
    line.give_back(Claim(60), 0)
    ticket = line.next(0)
    assert ticket is not None
    assert ticket.who == "large"
