"""Checks that a run is meaningful: enough load, enough faults, a healthy cluster at the end,
complete final reads.

The module is pure. The problems that it reports make a run invalid or unknown, in addition to the
anomalies that the checkers find. A cluster that had no faults or hardly any load shows nothing, so
its verdict is unknown.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.processes.runs.run_plan import RunPlan

CHECKER = "run"


@dataclass(slots=True, kw_only=True)
class RunSummary:
    """Facts about the course of a run, as recorded for one of its workloads."""

    seconds: float = 0.0
    """Duration of the run's load in seconds, up to the healing of the last fault."""
    operation_count: int = 0
    """Number of client operations during the load, over all workloads on the cluster."""
    own_operation_count: int = 0
    """Number of client operations of this workload during the load."""
    faults: dict[str, int] = field(default_factory=dict)
    """Number of injected faults, by the nemesis's name."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Reason why this machine does not allow a nemesis, by the name of the nemesis."""
    fault_errors: list[str] = field(default_factory=list)
    """Error messages about faults that could not be injected or healed."""
    broken_clients: dict[str, int] = field(default_factory=dict)
    """Number of unexpected exceptions that clients raised, by text. Clients must never raise
    one."""
    is_interrupted: bool = False
    is_read: bool = False
    """True if the workload's final reads (after the load) have reached the end of every log."""
    unhealthy: str = ""
    """Reason why the cluster was not healthy after the last fault, or "" if the cluster was
    healthy."""
    died: list[str] = field(default_factory=list)
    """Names of the nodes whose processes ended by themselves during the run."""

    @property
    def own_ops_per_s(self) -> float:
        """Client operations per second of this workload alone."""
        return self.own_operation_count / self.seconds if self.seconds else 0.0

    @property
    def ops_per_s(self) -> float:
        """Client operations per second of all workloads on the cluster together."""
        return self.operation_count / self.seconds if self.seconds else 0.0

    @property
    def fault_count(self) -> int:
        """Number of faults of all kinds that were injected in the run."""
        return sum(self.faults.values())

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON, in the form that test.json uses."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "RunSummary":
        """Parse the JSON of a run's summary in test.json, and return the summary."""
        names = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in found.items() if name in names})


def judge_run(plan: RunPlan, summary: RunSummary) -> Verdict:
    """Return a verdict on whether the run is meaningful: it needs enough load, enough faults, and
    complete final reads (of all records after the load)."""
    findings = Findings(CHECKER)
    findings.figures.update(
        ops_per_s=round(summary.ops_per_s, 1),
        faults=dict(summary.faults),
        skipped=dict(summary.skipped),
    )
    if summary.is_interrupted:
        findings.undecided.append("it was interrupted")
    elif summary.ops_per_s < plan.ops_per_s_min:
        findings.add_shortage(
            "too-few-operations",
            f"{summary.ops_per_s:.0f} operations per second; a valid run has at least "
            f"{plan.ops_per_s_min:g} (--min-ops)",
        )
    if not summary.is_interrupted and summary.fault_count < plan.fault_count_min:
        findings.add_shortage(
            "too-few-faults",
            f"{summary.fault_count} faults were injected; a valid run has at least "
            f"{plan.fault_count_min} (--min-faults)",
        )
    for name, why in summary.skipped.items():
        findings.undecided.append(f"this machine does not allow {name}: {why}")
    for error in summary.fault_errors:
        findings.undecided.append(error)
    for error, count in sorted(summary.broken_clients.items()):
        findings.add("client-broke", f"{error} ({count} times)")
    for node in summary.died:
        findings.add("node-died", f"{node}, though the harness did not end it")
    if summary.unhealthy:
        findings.add("not-healthy-again", summary.unhealthy)
    if not summary.is_read and not summary.is_interrupted:
        findings.undecided.append("the final reads did not reach the end of every log")
    return findings.verdict(RunFacts())
