"""Topics in an object store lose no record while nodes and the store fail.

With OTTLA_WORLDS=full, a seed repeats its run.
"""

from typing import Any

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, make_engine
from tests.jepsen.search_length import IS_FULL, length

SEEDS = (2, 1, 4)[: length(1, 3)]
BUDGET = 6_000


def run(seed: int) -> RunOutcome:
    return make_engine("whole", "tiered").run(Chance(seed), budget=BUDGET)


def test_tiered_topics_lose_no_record_under_faults(explored: Any) -> None:
    for seed in SEEDS:
        outcome = run(seed)
        explored("C tiered", outcome)
        assert outcome.violation is None
        assert outcome.rare["records are only in the store"] > 0
    if IS_FULL:
        again = run(SEEDS[-1])
        assert (again.trace_hash, again.figures) == (outcome.trace_hash, outcome.figures)
