"""Bugs of the bank that real processes show: how each is to be run, and by what it is known.

A harness that finds nothing proves nothing unless it is seen to find what is there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.jepsen.processes.run_plan import RunPlan


@dataclass(frozen=True, slots=True)
class Planted:
    """One bug, the run that shows it, and the anomalies any of which names it."""

    plan: RunPlan
    anomalies: tuple[str, ...]


def found_by(bug: Planted, results: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the first finding that names the bug and has operations that prove it."""
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
) -> tuple[str, Planted]:
    plan = RunPlan(
        workloads=(workload,),
        nemeses=(nemesis,),
        seconds=60.0,
        planted=bug,
        # A broken cluster may be slow as well: what counts is what it says.
        ops_per_s_min=50.0,
    )
    return bug, Planted(plan, anomalies)


PLANTED = dict(
    (
        # A leader cut off from its followers goes on promising; then the others elect one.
        _planted("acknowledged-at-append", "queue", "partition-leader", ("lost-write",)),
        _planted("watermark-at-leader-end", "queue", "partition-leader", ("inconsistent-offsets",)),
        # A connection that breaks has the client send again.
        _planted("duplicates-appended", "queue", "reset", ("duplicate",)),
        # So does a broker that dies; the next leader has the records, but not who sent them.
        _planted("replication-sequences-unseen", "queue", "kill", ("duplicate",)),
        _planted("commit-answered-at-append", "offsets", "partition-leader", ("nonlinearizable",)),
        _planted(
            "producer-ids-again", "producer-ids", "partition-controller", ("duplicate-producer-id",)
        ),
    )
)
