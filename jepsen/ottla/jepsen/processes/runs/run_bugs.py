"""Deliberate bugs that runs on real processes must reveal. For each bug, a table has the plan of a
run and the anomalies that identify the bug.

A harness that reports no bugs is evidence only if it is known to find deliberate bugs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.jepsen.processes.runs.run_plan import RunPlan


@dataclass(frozen=True, slots=True)
class BugRun:
    """A deliberate bug, with the plan of a run that reveals the bug, and the anomalies that
    identify it. One of these anomalies is sufficient."""

    plan: RunPlan
    anomalies: tuple[str, ...]


def found_by(bug: BugRun, results: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the first anomaly in `results` that identifies the bug and lists operations as
    evidence, or None if no anomaly does."""
    for found in results:
        for verdict in found["verdicts"]:
            if verdict["valid"] is not False:
                continue
            for finding in verdict["findings"]:
                if finding["anomaly"] in bug.anomalies and finding["operations"]:
                    return dict(finding)
    return None


def _planted(
    bug: str, workload: str, nemesis: str, anomalies: tuple[str, ...]
) -> tuple[str, BugRun]:
    plan = RunPlan(
        workloads=(workload,),
        nemeses=(nemesis,),
        seconds=60.0,
        planted=bug,
        # A broken cluster may be slow as well. Only its results count here.
        ops_per_s_min=50.0,
    )
    return bug, BugRun(plan, anomalies)


PLANTED = dict(
    (
        # A leader cut off from its followers continues to acknowledge, and the others elect a new
        # leader.
        _planted("acknowledged-at-append", "queue", "partition-leader", ("lost-write",)),
        _planted("watermark-at-leader-end", "queue", "partition-leader", ("inconsistent-offsets",)),
        # A broken connection makes the client send again.
        _planted("duplicates-appended", "queue", "reset", ("duplicate",)),
        # So does a dead broker. The next leader has the records, but not their producer ids and
        # sequence numbers.
        _planted("replication-sequences-unseen", "queue", "kill", ("duplicate",)),
        _planted("commit-answered-at-append", "offsets", "partition-leader", ("nonlinearizable",)),
        _planted(
            "producer-ids-again", "producer-ids", "partition-controller", ("duplicate-producer-id",)
        ),
    )
)
