"""A former leader of a tiered topic leads again, and serves only the records of the present log."""

from typing import Any

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import make_engine
from tests.jepsen.search_length import length

SEEDS = (5, 2, 20, 24)[: length(1, 4)]


def test_a_former_leader_serves_only_the_present_log(explored: Any) -> None:
    engine = make_engine("whole", "tiered-forked")
    for seed in SEEDS:
        outcome = engine.run(Chance(seed), budget=engine.budget)
        explored("C tiered-forked", outcome)
        assert outcome.violation is None
        assert outcome.event_count > 1_000
