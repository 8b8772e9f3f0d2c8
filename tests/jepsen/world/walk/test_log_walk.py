"""The walk on a partition's log: no death at any disk operation breaks an invariant."""

from typing import Any

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.runner import Job, run_batch
from ottla.jepsen.world.walk.log_sequences import SequencesLogWalk
from ottla.jepsen.world.walk.log_walk import FailingLogWalk, LogWalk
from tests.jepsen.search_length import length

FIRST_SEED, HISTORY_COUNT = length(50, 0), length(40, 300)
FAILING_COUNT = length(40, 200)
SEQUENCES_COUNT = 30
JOB = Job(engine="walk", subject="log", budget=LogWalk.budget)


def test_no_history_breaks_an_invariant_and_every_rare_state_is_met(explored: Any) -> None:
    totals = run_batch(JOB, FIRST_SEED, HISTORY_COUNT)
    explored(f"{JOB.engine} {JOB.subject}", totals)

    assert [(each.seed, str(each.violation)) for each in totals.failures] == []
    assert totals.missed(LogWalk.required) == []
    assert totals.figures["power cuts"] > HISTORY_COUNT
    assert totals.figures["recoveries"] > HISTORY_COUNT


def test_a_directory_that_fails_inside_any_operation_breaks_no_invariant(explored: Any) -> None:
    job = Job(engine="walk", subject="log-failing", budget=FailingLogWalk.budget)

    totals = run_batch(job, 0, FAILING_COUNT)

    explored(f"{job.engine} {job.subject}", totals)
    assert [(each.seed, str(each.violation)) for each in totals.failures] == []
    assert totals.rare["the directory fails inside a truncation"] > FAILING_COUNT // 10


def test_sequences_before_a_crash_break_no_invariant_and_each_is_completed(explored: Any) -> None:
    job = Job(engine="walk", subject="log-sequences", budget=SequencesLogWalk.budget)

    totals = run_batch(job, 0, SEQUENCES_COUNT)

    explored(f"{job.engine} {job.subject}", totals)
    assert [(each.seed, str(each.violation)) for each in totals.failures] == []
    assert set(totals.missed(SequencesLogWalk.required)) <= set(LogWalk.required)


def test_a_run_is_its_decisions() -> None:
    engine = LogWalk()
    first = engine.run(Chance(17), budget=120)

    again = engine.run(Chance(17, replay=first.decisions), budget=120)

    assert again.trace_hash == first.trace_hash
