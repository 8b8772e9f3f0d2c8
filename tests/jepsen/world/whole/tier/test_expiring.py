"""Tiered topics that expire, are elected uncleanly and are deleted keep each record in one lineage
while leaders die in each state of a copy."""

from typing import Any

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, make_engine
from tests.jepsen.search_length import length

SEEDS = (2, 1, 3, 4)[: length(1, 4)]
BUDGET = length(4_000, 14_000)


def run(seed: int) -> RunOutcome:
    return make_engine("whole", "tiered-expiring").run(Chance(seed), budget=BUDGET)


def test_expiring_and_forked_logs_are_readable_in_one_lineage(explored: Any) -> None:
    for seed in SEEDS:
        outcome = run(seed)
        explored("C tiered-expiring", outcome)
        assert outcome.violation is None
        assert outcome.event_count > 1_000
