"""Engine D on one partition: every short course of every case, and a bug on a shortest way."""

from typing import Any

import pytest

from ottla.jepsen.world.bugs import bank
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.exhaustive.partition_cases import CASES, DEPTH_MAX, PartitionCases

BUDGET = 600


@pytest.mark.parametrize("case", range(len(CASES)))
def test_no_course_breaks_an_invariant(explored: Any, case: int) -> None:
    outcome = PartitionCases().run(Chance(case), budget=BUDGET)
    explored("D replication", outcome)

    assert outcome.violation is None
    depths = range(3, DEPTH_MAX + 1)
    assert any(outcome.figures.get(f"cases seen whole to depth {depth}") for depth in depths)
    assert outcome.figures["states"] > 100


def test_a_search_goes_the_same_way_every_time() -> None:
    first, second = (PartitionCases().run(Chance(1), budget=300) for _ in range(2))

    assert first.trace_hash == second.trace_hash
    assert first.figures == second.figures


@pytest.mark.parametrize("name", ["replication-watermark-ahead", "controller-fenced-in-isr"])
def test_a_bug_is_found_and_its_way_replayed(name: str) -> None:
    engine = PartitionCases()

    with bank.mutant(name).apply():
        found = engine.run(Chance(2), budget=BUDGET)
        again = engine.run(Chance(2, replay=found.decisions), budget=BUDGET)

    assert found.violation is not None
    assert again.violation is not None
    assert again.violation.invariant == found.violation.invariant
