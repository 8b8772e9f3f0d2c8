"""The walk on groups: whatever members, coordinators and topics do, in both protocols."""

from typing import Any

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.runner import Job, run_batch
from ottla.jepsen.world.walk.group_walk import GroupWalk
from tests.jepsen.search_length import length

STORY_COUNT = length(30, 250)
JOB = Job(engine="walk", subject="group", budget=GroupWalk.budget)


def test_no_story_breaks_an_invariant_and_every_rare_state_is_met(explored: Any) -> None:
    totals = run_batch(JOB, 0, STORY_COUNT)
    explored(f"{JOB.engine} {JOB.subject}", totals)

    assert [(each.seed, str(each.violation)) for each in totals.failures] == []
    assert totals.missed(GroupWalk.required) == []
    assert totals.figures["failovers"] > STORY_COUNT
    assert totals.figures["commits"] > STORY_COUNT


def test_a_run_is_its_decisions() -> None:
    engine = GroupWalk()
    first = engine.run(Chance(17), budget=120)

    again = engine.run(Chance(17, replay=first.decisions), budget=120)

    assert again.trace_hash == first.trace_hash
