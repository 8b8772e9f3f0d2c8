"""Clients die about every half minute, and not together."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ottla.jepsen.workloads.crashes import LIFE_NS, Crashes


@given(st.integers(0, 999))
def test_a_life_lasts_from_half_its_mean_to_one_and_a_half(seed: int) -> None:
    rng = Random(seed)
    crashes = Crashes()
    step_ns = LIFE_NS // 30
    died = [step for step in range(600) if crashes.is_due(0, step * step_ns, rng)]
    lives = [b - a for a, b in zip([0, *died], died, strict=False)]
    assert all(15 <= life <= 46 for life in lives)
    assert 600 / 46 - 1 <= len(died) <= 600 / 15


def test_threads_do_not_die_together() -> None:
    rng = Random(0)
    crashes = Crashes()
    first: dict[int, int] = {}
    for step in range(100):
        for thread in range(8):
            if crashes.is_due(thread, step * LIFE_NS // 50, rng):
                first.setdefault(thread, step)
    assert len(first) == 8
    assert len(set(first.values())) > 4
