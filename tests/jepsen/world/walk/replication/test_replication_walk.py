"""The walk on replication: schedules of every kind, none of which breaks an invariant."""

from typing import Any

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.runner import Job, run_batch
from ottla.jepsen.world.walk.replication.replication_forgeries import ForgedReplicationWalk
from ottla.jepsen.world.walk.replication.replication_losses import LossReplicationWalk
from ottla.jepsen.world.walk.replication.replication_walk import ReplicationWalk
from tests.jepsen.search_length import IS_FULL, length

FIRST_SEED, SCHEDULE_COUNT = length(5, 0), length(40, 300)
"""Short searches begin shortly before schedules that meet every rare state but one."""
FIRST_FORGED_SEED, FORGED_SCHEDULE_COUNT = length(10, 0), length(20, 100)
LOSS_SCHEDULE_COUNT = length(15, 150)
RAREST = "a follower truncates unconfirmed records"
"""The one rare state that the short search may miss."""
JOB = Job(engine="walk", subject="replication", budget=ReplicationWalk.budget)


def test_no_schedule_breaks_an_invariant_and_every_rare_state_is_met(explored: Any) -> None:
    totals = run_batch(JOB, FIRST_SEED, SCHEDULE_COUNT)
    explored(f"{JOB.engine} {JOB.subject}", totals)

    assert [(each.seed, str(each.violation)) for each in totals.failures] == []
    assert set(totals.missed(ReplicationWalk.required)) <= (set() if IS_FULL else {RAREST})
    assert totals.figures["elections"] > SCHEDULE_COUNT
    assert totals.figures["ISR changes"] > SCHEDULE_COUNT
    assert totals.figures["commits"] > SCHEDULE_COUNT
    assert totals.figures["power cuts"] > SCHEDULE_COUNT


def test_a_run_is_its_decisions() -> None:
    engine = ReplicationWalk()
    first = engine.run(Chance(17), budget=250)

    again = engine.run(Chance(17, replay=first.decisions), budget=250)

    assert again.trace_hash == first.trace_hash
    assert again.figures == first.figures


def test_no_lie_about_followers_breaks_an_invariant(explored: Any) -> None:
    job = Job(engine="walk", subject=ForgedReplicationWalk.subject, budget=ReplicationWalk.budget)

    totals = run_batch(job, FIRST_FORGED_SEED, FORGED_SCHEDULE_COUNT)
    explored(f"{job.engine} {job.subject}", totals)

    assert [(each.seed, str(each.violation)) for each in totals.failures] == []
    assert totals.missed(ForgedReplicationWalk.required) == []


def test_no_lost_replica_is_elected_in_any_order_of_restarts(explored: Any) -> None:
    job = Job(engine="walk", subject=LossReplicationWalk.subject, budget=ReplicationWalk.budget)

    totals = run_batch(job, 0, LOSS_SCHEDULE_COUNT)
    explored(f"{job.engine} {job.subject}", totals)

    assert [(each.seed, str(each.violation)) for each in totals.failures] == []
    assert totals.missed(LossReplicationWalk.required) == []
    assert totals.figures["losses"] > LOSS_SCHEDULE_COUNT // 2
