"""Log managers with continuous compaction: no death loses a key or restores a deleted one."""

from typing import Any

from ottla.jepsen.world.runner import Job, run_batch
from ottla.jepsen.world.whole.compaction import CompactionOfLogs
from tests.jepsen.search_length import length

RUN_COUNT = length(4, 10)
JOB = Job(engine="whole", subject="compaction", budget=CompactionOfLogs.budget)


def test_no_run_breaks_an_invariant_and_every_rare_state_is_met(explored: Any) -> None:
    totals = run_batch(JOB, 0, RUN_COUNT)
    explored(f"{JOB.engine} {JOB.subject}", totals)

    assert [(each.seed, str(each.violation)) for each in totals.failures] == []
    assert totals.missed(CompactionOfLogs.required) == []
    assert totals.figures["power cuts"] > RUN_COUNT
    assert totals.figures["cleanings"] > RUN_COUNT
