"""The search finds a linearization exactly when there is one, and reports when it gave up."""

from collections.abc import Sequence
from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.jepsen.checkers.wgl import NEVER, ObjectCall, linearize

Asked = tuple[str, int]


def step(state: int, asked: Asked) -> Sequence[int]:
    f, value = asked
    if f == "write":
        return (value,)
    if f == "add":
        return (state + value,)
    if f == "any":
        return range(value)
    return (state,) if state == value else ()


def call(begin: int, end: int, f: str, value: int) -> ObjectCall[Asked]:
    return ObjectCall(begin, end, (f, value), is_read=f == "read")


@st.composite
def histories(draw: st.DrawFn) -> list[ObjectCall[Asked]]:
    count = draw(st.integers(1, 6))
    moments = draw(st.permutations(range(2 * count)))
    calls = []
    for number in range(count):
        begin, end = sorted(moments[2 * number : 2 * number + 2])
        f = draw(st.sampled_from(("write", "read", "read", "add", "any")))
        if f != "read" and draw(st.integers(0, 3)) == 0:
            end = NEVER
        calls.append(call(begin, end, f, draw(st.integers(0, 3))))
    return calls


def has_order(calls: list[ObjectCall[Asked]]) -> bool:
    """Try every order of all that returned and any of the others."""
    must = [place for place, each in enumerate(calls) if each.end != NEVER]
    others = [place for place, each in enumerate(calls) if each.end == NEVER]
    for chosen in range(1 << len(others)):
        places = must + [place for bit, place in enumerate(others) if chosen >> bit & 1]
        if any(is_order(calls, order) for order in permutations(places)):
            return True
    return False


def is_order(calls: list[ObjectCall[Asked]], order: tuple[int, ...]) -> bool:
    states = {0}
    for at, place in enumerate(order):
        states = {after for state in states for after in step(state, calls[place].asked)}
        if not states or any(calls[each].end < calls[place].begin for each in order[at:]):
            return False
    return True


@given(histories())
@settings(max_examples=600, deadline=None)
def test_an_order_is_found_exactly_when_trying_all_finds_one(
    calls: list[ObjectCall[Asked]],
) -> None:
    found = linearize(calls, 0, step, steps_max=100_000)
    assert found.is_linearizable is has_order(calls)
    if found.is_linearizable is True:
        assert is_order(calls, found.order)
        must = {place for place, each in enumerate(calls) if each.end != NEVER}
        assert must <= set(found.order)
        assert are_states(calls, found.order, found.states)


def are_states(calls: list[ObjectCall[Asked]], order: Sequence[int], states: Sequence[int]) -> bool:
    return len(order) == len(states) and all(
        state in step(before, calls[place].asked)
        for before, place, state in zip((0, *states), order, states, strict=False)
    )


def test_a_read_of_what_was_overwritten_before_it_began_has_no_order() -> None:
    calls = [call(0, 1, "write", 1), call(2, 3, "write", 2), call(4, 5, "read", 1)]
    found = linearize(calls, 0, step, steps_max=1_000)
    assert found.is_linearizable is False
    assert found.order == (0, 1)
    assert found.states == (1, 2)
    assert found.stuck == (2,)


def test_what_never_returned_may_come_late_or_not_at_all() -> None:
    late = [call(0, NEVER, "write", 1), call(2, 3, "read", 0), call(4, 5, "read", 1)]
    never = [call(0, NEVER, "write", 1), call(2, 3, "read", 0)]
    twice = [*late, call(6, 7, "write", 2), call(8, 9, "read", 1)]
    assert linearize(late, 0, step, steps_max=1_000).is_linearizable is True
    assert linearize(never, 0, step, steps_max=1_000).is_linearizable is True
    assert linearize(twice, 0, step, steps_max=1_000).is_linearizable is False


def test_a_search_that_takes_too_long_knows_nothing() -> None:
    calls = [call(0, 1_000 + number, "write", number + 1) for number in range(20)]
    calls.append(call(2_000, 2_001, "read", 99))
    found = linearize(calls, 0, step, steps_max=500)
    assert found.is_linearizable == "unknown"
    assert found.step_count == 501


def test_calls_done_with_one_state_are_tried_once() -> None:
    calls = [call(0, 1_000 + number, "write", number % 2) for number in range(12)]
    calls.append(call(2_000, 2_001, "read", 99))
    found = linearize(calls, 0, step, steps_max=1_000_000)
    assert found.is_linearizable is False
    assert found.step_count < 100_000, "without memory it is 12 factorial"
