"""Shrinking: a shorter list of draws with the same failure."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ottla.jepsen.world.shrink import shrink


def test_only_what_it_takes_is_left() -> None:
    def fails(decisions: Sequence[int]) -> bool:
        return 7 in decisions and 9 in decisions

    assert shrink([*range(100)], fails) == [7, 9]


def test_decisions_become_as_small_as_they_may() -> None:
    shrunk = shrink([3, 80, 4, 90], lambda ds: any(d >= 10 for d in ds))
    assert len(shrunk) == 1
    assert 10 <= shrunk[0] < 20


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 5))
def test_what_comes_out_fails_and_is_no_longer(decisions: list[int], modulus: int) -> None:
    def fails(candidate: Sequence[int]) -> bool:
        return sum(candidate) % modulus == sum(decisions) % modulus and len(candidate) > 0

    shrunk = shrink(decisions, fails)

    assert fails(shrunk)
    assert len(shrunk) <= len(decisions)


def test_the_number_of_trials_is_bounded() -> None:
    trials: list[int] = []

    def fails(candidate: Sequence[int]) -> bool:
        trials.append(len(candidate))
        return len(candidate) >= 50

    shrunk = shrink([1] * 500, fails, trials_max=40)

    assert len(trials) <= 40
    assert fails(shrunk)
