"""The walk over the controller's decisions: random histories of brokers, and their invariants."""

from typing import Any

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.runner import Job, run_batch
from ottla.jepsen.world.walk.controller_walk import ControllerWalk
from tests.jepsen.search_length import length

FIRST_SEED, SCHEDULE_COUNT = length(9, 0), length(7, 40)
JOB = Job(engine="walk", subject="controller", budget=ControllerWalk.budget)


def test_no_life_breaks_an_invariant_and_every_rare_state_is_met(explored: Any) -> None:
    totals = run_batch(JOB, FIRST_SEED, SCHEDULE_COUNT)
    explored(f"{JOB.engine} {JOB.subject}", totals)

    assert [(each.seed, str(each.violation)) for each in totals.failures] == []
    assert totals.missed(ControllerWalk.required) == []
    assert totals.figures["elections"] > SCHEDULE_COUNT
    assert totals.figures["acknowledged"] > SCHEDULE_COUNT
    assert totals.figures["controller failovers"] > SCHEDULE_COUNT // 2


def test_a_run_is_its_decisions() -> None:
    engine = ControllerWalk()
    first = engine.run(Chance(17), budget=100)

    again = engine.run(Chance(17, replay=first.decisions), budget=100)

    assert again.trace_hash == first.trace_hash
    assert again.figures == first.figures
