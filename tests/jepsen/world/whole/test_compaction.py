"""Log managers whose logs are compacted all the time: no death loses a key or brings one back."""

from typing import Any

from ottla.jepsen.world.runner import Job, run_batch
from ottla.jepsen.world.whole.compaction import CompactionOfLogs

RUN_COUNT = 10
JOB = Job(engine="whole", subject="compaction", budget=CompactionOfLogs.budget)


def test_no_run_breaks_an_invariant_and_every_rare_state_is_met(explored: Any) -> None:
    tally = run_batch(JOB, 0, RUN_COUNT)
    explored(f"{JOB.engine} {JOB.subject}", tally)

    assert [(each.seed, str(each.violation)) for each in tally.failures] == []
    assert tally.missed(CompactionOfLogs.required) == []
    assert tally.figures["power cuts"] > RUN_COUNT
    assert tally.figures["cleanings"] > RUN_COUNT
