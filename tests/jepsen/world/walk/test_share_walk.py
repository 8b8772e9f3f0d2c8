"""The walk on a share partition: no order of deliveries, writes and failovers breaks a rule."""

from typing import Any

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.runner import Job, run_batch
from ottla.jepsen.world.walk.shares.share_walk import ShareWalk
from tests.jepsen.search_length import length

FIRST_SEED, SCHEDULE_COUNT = length(800, 0), length(300, 10_000)
"""The short search begins shortly before schedules that meet every rare state."""
JOB = Job(engine="walk", subject="shares", budget=ShareWalk.budget)


def test_no_schedule_breaks_an_invariant_and_every_rare_state_is_met(explored: Any) -> None:
    totals = run_batch(JOB, FIRST_SEED, SCHEDULE_COUNT)
    explored(f"{JOB.engine} {JOB.subject}", totals)

    assert [(each.seed, str(each.violation)) for each in totals.failures] == []
    assert totals.missed(ShareWalk.required) == []
    assert totals.figures["deliveries"] > 10 * SCHEDULE_COUNT
    assert totals.figures["failovers"] > SCHEDULE_COUNT // 10


def test_a_run_is_its_decisions() -> None:
    engine = ShareWalk()
    first = engine.run(Chance(17), budget=120)

    again = engine.run(Chance(17, replay=first.decisions), budget=120)

    assert again.trace_hash == first.trace_hash
    assert again.figures == first.figures
