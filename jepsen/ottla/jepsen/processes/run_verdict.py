"""Whether a run was one at all: enough load, enough faults, a cluster that came back, all read.

Pure.  What it finds makes a run invalid or unknown beside anything the checkers say of the history:
a cluster that was never hurt, or hardly used, shows nothing, which is unknown.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.processes.run_plan import RunPlan

CHECKER = "run"


@dataclass(slots=True, kw_only=True)
class RunCourse:
    """What became of a run, as one of its workloads has it."""

    seconds: float = 0.0
    """How long load was sent, until the nemesis had done its last."""
    operation_count: int = 0
    """In that time, of all workloads that shared the cluster."""
    own_operation_count: int = 0
    """Of this workload."""
    faults: dict[str, int] = field(default_factory=dict)
    """Injected, by nemesis."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Nemeses that this machine cannot do, each with the reason."""
    fault_errors: list[str] = field(default_factory=list)
    """Faults that failed to be injected or healed."""
    broken_clients: dict[str, int] = field(default_factory=dict)
    """Errors no client may raise, and how often."""
    is_interrupted: bool = False
    is_read: bool = False
    """Whether the final reads saw the end of every log."""
    unhealthy: str = ""
    """Why the cluster was not whole again after the last fault; empty: it was."""
    died: list[str] = field(default_factory=list)
    """Nodes that ended though nobody ended them."""

    @property
    def own_ops_per_s(self) -> float:
        """Operations a second of this workload."""
        return self.own_operation_count / self.seconds if self.seconds else 0.0

    @property
    def ops_per_s(self) -> float:
        """Operations a second, of all workloads."""
        return self.operation_count / self.seconds if self.seconds else 0.0

    @property
    def fault_count(self) -> int:
        """Faults injected, of all kinds."""
        return sum(self.faults.values())

    def to_json(self) -> dict[str, Any]:
        """Return it as test.json keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "RunCourse":
        """Take it from test.json."""
        names = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in found.items() if name in names})


def judge_course(plan: RunPlan, course: RunCourse) -> Verdict:
    """Return whether the run can be believed at all."""
    findings = Findings(CHECKER)
    findings.figures.update(
        ops_per_s=round(course.ops_per_s, 1),
        faults=dict(course.faults),
        skipped=dict(course.skipped),
    )
    if course.is_interrupted:
        findings.undecided.append("it was interrupted")
    elif course.ops_per_s < plan.ops_per_s_min:
        findings.add_shortage(
            "too-few-operations",
            f"{course.ops_per_s:.0f} operations a second; below {plan.ops_per_s_min:g} a run says "
            "nothing (--min-ops)",
        )
    if not course.is_interrupted and course.fault_count < plan.fault_count_min:
        findings.add_shortage(
            "too-few-faults",
            f"{course.fault_count} faults were injected; fewer than {plan.fault_count_min} say "
            "nothing (--min-faults)",
        )
    for name, why in course.skipped.items():
        findings.undecided.append(f"{name} cannot be done here: {why}")
    for error in course.fault_errors:
        findings.undecided.append(error)
    for error, count in sorted(course.broken_clients.items()):
        findings.add("client-broke", f"{error} ({count} times)")
    for node in course.died:
        findings.add("node-died", f"{node}, though nobody ended it")
    if course.unhealthy:
        findings.add("not-healthy-again", course.unhealthy)
    if not course.is_read and not course.is_interrupted:
        findings.undecided.append("the final reads did not come to the end of every log")
    return findings.verdict(RunFacts())
