"""A share group of a cluster under fire loses no record.

With OTTLA_WORLDS=full, each seed repeats its run.
"""

from typing import Any

import pytest

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, make_engine
from tests.jepsen.search_length import IS_FULL, length

SEEDS = (5, 11, 12)[: length(1, 3)]
BUDGET = 8_000


def run(seed: int, subject: str = "shares") -> RunOutcome:
    return make_engine("whole", subject).run(Chance(seed), budget=BUDGET)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_share_group_settles_every_record_once_under_faults(explored: Any, seed: int) -> None:
    outcome = run(seed)
    explored("C shares", outcome)
    assert outcome.violation is None
    assert outcome.figures["commits"] > 0
    assert outcome.rare["a record is delivered again"] > 0
    if IS_FULL:  # Members draw their ids from the seed, too.
        again = run(seed)
        assert (again.trace_hash, again.figures) == (outcome.trace_hash, outcome.figures)


def test_a_replaced_leader_settles_nothing(explored: Any) -> None:
    outcome = run(2, "share-leaders")
    explored("C share leaders", outcome)
    assert outcome.violation is None
    assert outcome.rare["a replaced leader does not know it"] > 0


def test_a_share_group_keeps_order_delays_and_back_offs_under_faults(explored: Any) -> None:
    outcome = run(1, "ordered-shares")
    explored("C ordered shares", outcome)
    assert outcome.violation is None
    assert outcome.rare["a delayed record is delivered"] > 0
    if IS_FULL:
        assert run(1, "ordered-shares").trace_hash == outcome.trace_hash
