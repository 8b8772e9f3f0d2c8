"""The walk on feature levels: no order of registrations and levels admits an old controller."""

from typing import Any

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.runner import Job, run_batch
from ottla.jepsen.world.walk.feature_walk import FeatureWalk
from tests.jepsen.search_length import length

SCHEDULE_COUNT = length(100, 10_000)
JOB = Job(engine="walk", subject="features", budget=FeatureWalk.budget)


def test_no_schedule_breaks_an_invariant_and_every_rare_state_is_met(explored: Any) -> None:
    totals = run_batch(JOB, 0, SCHEDULE_COUNT)
    explored(f"{JOB.engine} {JOB.subject}", totals)

    assert [(each.seed, str(each.violation)) for each in totals.failures] == []
    assert totals.missed(FeatureWalk.required) == []


def test_a_run_is_its_decisions() -> None:
    engine = FeatureWalk()
    first = engine.run(Chance(17), budget=60)

    again = engine.run(Chance(17, replay=first.decisions), budget=60)

    assert again.trace_hash == first.trace_hash
    assert again.figures == first.figures
