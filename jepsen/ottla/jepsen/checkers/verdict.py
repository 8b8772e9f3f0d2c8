"""What a checker is told, and what it says.

Pure.  A verdict is True only when everything was looked at and nothing was wrong: what could not be
decided is "unknown", which is never a pass.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

from ottla.jepsen.history import History, Json

Validity: TypeAlias = bool | Literal["unknown"]

FINDINGS_KEPT_MAX = 8
"""Examples told for each anomaly: enough to see a pattern, few enough to read."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly, and what proves it."""

    anomaly: str
    detail: str
    """One sentence with its numbers."""
    operations: tuple[int, ...] = ()
    """Indexes of the events that prove it."""
    key: str | None = None

    def to_json(self) -> dict[str, Json]:
        """Return the finding as results.json has it."""
        return {
            "anomaly": self.anomaly,
            "detail": self.detail,
            "operations": list(self.operations),
            "key": self.key,
        }

    @staticmethod
    def from_json(told: Mapping[str, Json]) -> "Finding":
        """Read a finding of results.json."""
        return Finding(told["anomaly"], told["detail"], tuple(told["operations"]), told["key"])


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one checker says of one history."""

    checker: str
    valid: Validity
    findings_count: Mapping[str, int] = field(default_factory=dict)
    """By anomaly, the allowed ones too."""
    findings: Sequence[Finding] = ()
    """The first few of each anomaly."""
    figures: Mapping[str, Json] = field(default_factory=dict)
    """What was measured beside: counts, lags, shares; never failing."""
    reason: str | None = None
    """Why it is not valid, in one sentence."""

    def to_json(self) -> dict[str, Json]:
        """Return the verdict as results.json has it."""
        return {
            "checker": self.checker,
            "valid": self.valid,
            "findings_count": dict(self.findings_count),
            "findings": [finding.to_json() for finding in self.findings],
            "figures": dict(self.figures),
            "reason": self.reason,
        }

    @staticmethod
    def from_json(told: Mapping[str, Json]) -> "Verdict":
        """Read a verdict of results.json."""
        return Verdict(
            told["checker"],
            told["valid"],
            told["findings_count"],
            tuple(Finding.from_json(finding) for finding in told["findings"]),
            told["figures"],
            told["reason"],
        )


@dataclass(frozen=True, slots=True)
class DirectoryCheck:
    """What the check of one node's data directory said after the run."""

    node: str
    is_sound: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a checker must know of a run beside its history."""

    workload: str = "queue"
    idempotent: bool = True
    """Of clients whose events do not say it themselves."""
    acks: str = "all"
    clients: tuple[str, ...] = ("ottla",)
    nemeses: tuple[str, ...] = ()
    seconds: float = 0.0
    """How long load was sent, without the final reads."""
    ops_per_s_minimum: float = 0.0
    faults_minimum: int = 0
    ok_share_minimum: float = 0.99
    """Of operations invoked while no fault was under way and recovery was over."""
    recovery_s_max: float = 30.0
    """From the end of a fault to the first second that is as good as before (p99 of all faults)."""
    allowed: frozenset[str] = frozenset()
    """Anomalies that are told but do not fail this run, beside those a checker always allows."""
    ww_edges: bool = False
    """Whether cycles follow the order of logs, which transactions of Kafka's do not keep."""
    server_errors: tuple[tuple[str, str], ...] = ()
    """(node, line) of every traceback or broken assertion in the servers' logs."""
    directory_checks: tuple[DirectoryCheck, ...] = ()
    record_key_count: int = 0
    """Of each log, which is compacted then; 0: records have no key, and none may go."""
    steps_max: int = 2_000_000
    """How far a search for a linear order goes for one key before it says "unknown"."""

    def to_json(self) -> dict[str, Json]:
        """Return the facts as test.json has them."""
        told: dict[str, Json] = {part.name: getattr(self, part.name) for part in fields(self)}
        told["allowed"] = sorted(self.allowed)
        for name in ("clients", "nemeses"):
            told[name] = list(told[name])
        told["server_errors"] = [list(error) for error in self.server_errors]
        told["directory_checks"] = [
            {"node": check.node, "is_sound": check.is_sound, "detail": check.detail}
            for check in self.directory_checks
        ]
        return told

    @staticmethod
    def from_json(told: Mapping[str, Json]) -> "RunFacts":
        """Read the facts of test.json; what is not there has its default."""
        known = {part.name for part in fields(RunFacts)}
        given = {name: value for name, value in told.items() if name in known}
        for name in ("clients", "nemeses"):
            given[name] = tuple(given.get(name, getattr(RunFacts(), name)))
        given["allowed"] = frozenset(given.get("allowed", ()))
        given["server_errors"] = tuple(
            (node, line) for node, line in given.get("server_errors", ())
        )
        given["directory_checks"] = tuple(
            DirectoryCheck(**check) for check in given.get("directory_checks", ())
        )
        return RunFacts(**given)


Checker: TypeAlias = Callable[[History, RunFacts], Verdict]


class Findings:
    """Collects anomalies and makes the verdict of them."""

    def __init__(self, checker: str) -> None:
        self.figures: dict[str, Json] = {}
        self.undecided: list[str] = []
        """Why parts could not be decided, a sentence each."""
        self._checker = checker
        self._count: dict[str, int] = {}
        self._kept: list[Finding] = []
        self._shortages: dict[str, str] = {}

    def add(
        self, anomaly: str, detail: str, operations: Iterable[int] = (), key: str | None = None
    ) -> None:
        """Take in one anomaly."""
        count = self._count[anomaly] = self._count.get(anomaly, 0) + 1
        if count <= FINDINGS_KEPT_MAX:
            self._kept.append(Finding(anomaly, detail, tuple(operations), key))

    def add_shortage(self, anomaly: str, detail: str) -> None:
        """Add an anomaly of the run, not of the cluster: too little was done to show anything.

        A slow machine has it too, so that it leaves the run undecided and never fails it.
        """
        self.add(anomaly, detail)
        self._shortages[anomaly] = detail

    def verdict(self, facts: RunFacts, *, allowed: frozenset[str] = frozenset()) -> Verdict:
        """Judge what was collected; `allowed` are the anomalies that this checker never fails."""
        harmless = allowed | facts.allowed
        short = [detail for name, detail in self._shortages.items() if name not in harmless]
        undecided = short + self.undecided
        bad = {
            name: count
            for name, count in self._count.items()
            if name not in harmless and name not in self._shortages
        }
        valid: Validity = True
        reason = None
        if bad:
            valid = False
            reason = ", ".join(f"{name} × {count}" for name, count in sorted(bad.items()))
        elif undecided:
            valid, reason = "unknown", "; ".join(undecided[:FINDINGS_KEPT_MAX])
        # What fails comes first.
        kept = tuple(sorted(self._kept, key=lambda finding: finding.anomaly not in bad))
        return Verdict(self._checker, valid, dict(self._count), kept, dict(self.figures), reason)


def combined(verdicts: Iterable[Verdict]) -> Validity:
    """Return False if any verdict is, else "unknown" if any is or there is none, else True."""
    seen = [verdict.valid for verdict in verdicts]
    if any(valid is False for valid in seen):
        return False
    return "unknown" if not seen or "unknown" in seen else True
