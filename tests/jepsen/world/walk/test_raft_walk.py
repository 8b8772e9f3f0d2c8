"""The walk on raft: schedules of every kind, none of which breaks an invariant."""

from typing import Any

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.runner import Job, run_batch
from ottla.jepsen.world.walk.raft_disk import DamagedRaftWalk, DiskRaftWalk
from ottla.jepsen.world.walk.raft_membership import MembershipRaftWalk
from ottla.jepsen.world.walk.raft_recovery import RecoveringRaftWalk
from ottla.jepsen.world.walk.raft_walk import ForgedRaftWalk, RaftWalk
from tests.jepsen.search_length import length

FIRST_SEED, SCHEDULE_COUNT = length(250, 0), length(80, 1_500)
"""Short searches begin shortly before schedules that meet every rare state."""
FORGED_COUNT = length(60, 200)
FIRST_MEMBERSHIP_SEED, MEMBERSHIP_COUNT = length(110, 0), length(80, 10_000)
FIRST_RECOVERY_SEED, RECOVERY_COUNT = length(30, 0), length(50, 10_000)
RARE_COUNT = 5_000
"""Number of schedules in which every rare state of changing voters is met."""
FIRST_DISK_SEED, DISK_SCHEDULE_COUNT = length(60, 0), length(40, 200)
FIRST_DAMAGED_SEED, DAMAGED_COUNT = length(10, 0), length(25, 200)
JOB = Job(engine="walk", subject="raft", budget=RaftWalk.budget)


def test_no_schedule_breaks_an_invariant_and_every_rare_state_is_met(explored: Any) -> None:
    totals = run_batch(JOB, FIRST_SEED, SCHEDULE_COUNT)
    explored(f"{JOB.engine} {JOB.subject}", totals)

    assert [(each.seed, str(each.violation)) for each in totals.failures] == []
    assert totals.missed(RaftWalk.required) == []
    assert totals.figures["elections"] > SCHEDULE_COUNT
    assert totals.figures["commits"] > SCHEDULE_COUNT
    assert totals.figures["power cuts"] > SCHEDULE_COUNT


def test_no_schedule_of_changing_voters_breaks_an_invariant(explored: Any) -> None:
    job = Job(engine="walk", subject=MembershipRaftWalk.subject, budget=MembershipRaftWalk.budget)
    tally = run_batch(job, FIRST_MEMBERSHIP_SEED, MEMBERSHIP_COUNT)
    explored(f"{job.engine} {job.subject}", tally)

    assert [(each.seed, str(each.violation)) for each in tally.failures] == []
    assert tally.rare["a voter is added"] > MEMBERSHIP_COUNT // 50
    assert tally.rare["a voter is removed"] > MEMBERSHIP_COUNT // 10
    assert tally.rare["a voter set is truncated"] > 0
    assert tally.rare["a voter joins by itself"] > 0
    if MEMBERSHIP_COUNT >= RARE_COUNT:
        assert tally.missed(MembershipRaftWalk.required) == []


def test_a_quorum_of_changing_voters_works_again_once_all_faults_end(explored: Any) -> None:
    job = Job(engine="walk", subject=RecoveringRaftWalk.subject, budget=RecoveringRaftWalk.budget)
    tally = run_batch(job, FIRST_RECOVERY_SEED, RECOVERY_COUNT)
    explored(f"{job.engine} {job.subject}", tally)

    assert [(each.seed, str(each.violation)) for each in tally.failures] == []
    assert tally.missed(RecoveringRaftWalk.required) == []
    assert tally.rare["a quorum works again"] > RECOVERY_COUNT * 3 // 4


def test_no_lie_of_a_stranger_breaks_an_invariant(explored: Any) -> None:
    job = Job(engine="walk", subject=ForgedRaftWalk.subject, budget=ForgedRaftWalk.budget)
    totals = run_batch(job, 0, FORGED_COUNT)
    explored(f"{job.engine} {job.subject}", totals)

    assert [(each.seed, str(each.violation)) for each in totals.failures] == []
    assert totals.rare["a forged request is answered"] > FORGED_COUNT
    assert totals.rare["a forged answer arrives"] > FORGED_COUNT // 10
    assert totals.figures["commits"] > FORGED_COUNT


def test_no_schedule_breaks_an_invariant_with_real_logs_on_disks_that_forget(explored: Any) -> None:
    job = Job(engine="walk", subject=DiskRaftWalk.subject, budget=DiskRaftWalk.budget)
    totals = run_batch(job, FIRST_DISK_SEED, DISK_SCHEDULE_COUNT)
    explored(f"{job.engine} {job.subject}", totals)

    assert [(each.seed, str(each.violation)) for each in totals.failures] == []
    assert totals.missed(DiskRaftWalk.required) == []
    assert totals.figures["commits"] > DISK_SCHEDULE_COUNT


def test_no_damage_of_a_minority_s_files_loses_what_was_committed(explored: Any) -> None:
    job = Job(engine="walk", subject=DamagedRaftWalk.subject, budget=DamagedRaftWalk.budget)
    totals = run_batch(job, FIRST_DAMAGED_SEED, DAMAGED_COUNT)
    explored(f"{job.engine} {job.subject}", totals)

    assert [(each.seed, str(each.violation)) for each in totals.failures] == []
    assert totals.missed(DamagedRaftWalk.required) == []
    assert totals.figures["commits"] > DAMAGED_COUNT


def test_a_run_over_real_logs_is_its_decisions() -> None:
    engine = DiskRaftWalk()
    first = engine.run(Chance(17), budget=120)

    again = engine.run(Chance(17, replay=first.decisions), budget=120)

    assert again.trace_hash == first.trace_hash
    assert again.figures == first.figures


def test_a_run_is_its_decisions() -> None:
    engine = RaftWalk()
    first = engine.run(Chance(17), budget=120)

    again = engine.run(Chance(17, replay=first.decisions), budget=120)

    assert again.trace_hash == first.trace_hash
    assert again.figures == first.figures


def test_a_beginning_of_the_decisions_is_a_run_too() -> None:
    engine = RaftWalk()
    whole = engine.run(Chance(17), budget=120)

    part = engine.run(Chance(17, replay=whole.decisions[:60]), budget=120)

    assert part.violation is None
    assert 0 < part.event_count < whole.event_count
