"""Clusters under fire keep transactions whole: nothing aborted, early or of a zombie is seen."""

from typing import Any

import pytest

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, make_engine


def run(subject: str, seed: int, budget: int) -> RunOutcome:
    return make_engine("whole", subject).run(Chance(seed), budget=budget)


@pytest.mark.parametrize(
    ("subject", "seed"),
    [
        ("transactions", 8),
        ("transactions-compacted", 2),
        ("transactions-coordinators", 1),
        ("transactions-clients", 202),
    ],
)
def test_transactions_of_a_cluster_under_fire_are_whole(
    explored: Any, subject: str, seed: int
) -> None:
    outcome = run(subject, seed, 6_000)
    explored(f"C {subject}", outcome)
    assert outcome.violation is None
    assert outcome.figures["commits"] > 0
    assert outcome.figures["read"] > 0
