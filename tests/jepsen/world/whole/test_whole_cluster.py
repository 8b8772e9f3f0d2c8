"""Whole clusters in virtual time keep their promises."""

from typing import Any

import pytest

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, make_engine

BUDGET = 6_000
SEEDS = (1, 2, 3)


def run(seed: int, budget: int = BUDGET, subject: str | None = None) -> RunOutcome:
    return make_engine("whole", subject).run(Chance(seed), budget=budget)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_under_fire_keeps_its_promises(explored: Any, seed: int) -> None:
    outcome = run(seed)
    explored("C cluster", outcome)
    assert outcome.violation is None
    assert outcome.figures["acknowledged"] > 0
    assert outcome.event_count > 1_000


def test_a_cluster_whose_logs_are_compacted_all_the_time_keeps_its_promises(explored: Any) -> None:
    outcome = run(6, subject="compacted")
    explored("C compacted", outcome)
    assert outcome.violation is None
    assert outcome.rare["a consumer passes over what was compacted"] > 0


def test_replicas_that_move_under_a_throttle_lose_nothing(explored: Any) -> None:
    outcomes = [run(seed, subject="throttled") for seed in (8, 12)]
    for outcome in outcomes:
        explored("C throttled", outcome)
        assert outcome.violation is None
    assert sum(outcome.figures["reassignments"] for outcome in outcomes) > 0
    waits = ("a leader has given as much as it may", "a follower has fetched as much as it may")
    assert sum(outcome.rare.get(wait, 0) for outcome in outcomes for wait in waits) > 0


def test_acknowledged_entries_stay_whatever_goes_wrong(explored: Any) -> None:
    outcome = run(12, subject="acls")
    explored("C acls", outcome)
    assert outcome.violation is None
    assert outcome.rare["a broker decides by entries"] > 0


def test_a_run_played_again_from_its_decisions_is_the_same() -> None:
    first = run(2)
    again = make_engine("whole").run(Chance(2, replay=first.decisions), budget=BUDGET)
    assert again.trace_hash == first.trace_hash
