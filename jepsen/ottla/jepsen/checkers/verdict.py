"""The properties of a run that a checker needs in addition to the history, and the verdict that a
checker returns.

The module is pure. A verdict is True only if everything was checked and no anomaly was found. If
that could not be decided, the verdict is "unknown", which never counts as a pass.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

from ottla.jepsen.history import History, Json

Validity: TypeAlias = bool | Literal["unknown"]

FINDINGS_KEPT_MAX = 8
"""Maximum number of examples that a verdict has for each anomaly: enough to see a pattern, few
enough to read."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly found by a checker, with the events that prove the anomaly."""

    anomaly: str
    detail: str
    """Description of the anomaly in one sentence, with its numbers."""
    operations: tuple[int, ...] = ()
    """Indexes of the events that prove the anomaly."""
    key: str | None = None

    def to_json(self) -> dict[str, Json]:
        """Return this anomaly as JSON, in the form that results.json uses."""
        return {
            "anomaly": self.anomaly,
            "detail": self.detail,
            "operations": list(self.operations),
            "key": self.key,
        }

    @staticmethod
    def from_json(data: Mapping[str, Json]) -> "Finding":
        """Parse an anomaly from the JSON of results.json, and return it."""
        return Finding(data["anomaly"], data["detail"], tuple(data["operations"]), data["key"])


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one checker for one history."""

    checker: str
    valid: Validity
    findings_count: Mapping[str, int] = field(default_factory=dict)
    """Number of findings of each anomaly, including the allowed anomalies."""
    findings: Sequence[Finding] = ()
    """Examples of each anomaly: the first ones that the checker found, at most
    FINDINGS_KEPT_MAX."""
    figures: Mapping[str, Json] = field(default_factory=dict)
    """Measured values by name, such as counts, lags and fractions. They never fail a run."""
    reason: str | None = None
    """Reason why the verdict is not True, in one sentence. None if the verdict is True."""

    def to_json(self) -> dict[str, Json]:
        """Return this verdict as JSON, in the form that results.json uses."""
        return {
            "checker": self.checker,
            "valid": self.valid,
            "findings_count": dict(self.findings_count),
            "findings": [finding.to_json() for finding in self.findings],
            "figures": dict(self.figures),
            "reason": self.reason,
        }

    @staticmethod
    def from_json(data: Mapping[str, Json]) -> "Verdict":
        """Parse a verdict from the JSON of results.json, and return it."""
        return Verdict(
            data["checker"],
            data["valid"],
            data["findings_count"],
            tuple(Finding.from_json(finding) for finding in data["findings"]),
            data["figures"],
            data["reason"],
        )


@dataclass(frozen=True, slots=True)
class DirectoryCheck:
    """Result of the check of one node's data directory after the run, with the problems found."""

    node: str
    is_sound: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Properties of a run that a checker needs in addition to the history."""

    workload: str = "queue"
    idempotent: bool = True
    """True if the run's producers are idempotent. This is the default for clients whose own events
    do not state it."""
    acks: str = "all"
    clients: tuple[str, ...] = ("ottla",)
    nemeses: tuple[str, ...] = ()
    seconds: float = 0.0
    """Duration of the run's load in seconds, without the final reads (which follow the load)."""
    ops_per_s_minimum: float = 0.0
    faults_minimum: int = 0
    ok_share_minimum: float = 0.99
    """Lowest allowed fraction of successful operations. Operations that were invoked during a fault
    or a recovery do not count."""
    recovery_s_max: float = 30.0
    """Longest allowed recovery time in seconds, from the end of a fault until every service
    succeeds again. It applies to the 99th percentile over all faults."""
    allowed: frozenset[str] = frozenset()
    """Names of anomalies that are reported without failing this run. They apply in addition to the
    anomalies that a checker always allows."""
    ww_edges: bool = False
    """True if the `cycles` checker uses ww edges (the order of records in a log). Kafka's
    transactions do not follow this order."""
    server_errors: tuple[tuple[str, str], ...] = ()
    """Node and line of text for every traceback or failed assertion in the servers' logs."""
    directory_checks: tuple[DirectoryCheck, ...] = ()
    record_key_count: int = 0
    """Number of record keys in each log. Logs are compacted if it is above 0. If it is 0, records
    have no key, and no record may be removed."""
    lock_ms: int = 30_000
    """Duration in ms of the acquisition locks of the run's share groups."""
    delivery_count_limit: int = 5
    """Maximum number of deliveries of a record, after which share groups archive the record."""
    share_backoff_ms: int = 0
    """Shortest back-off in ms of the run's share groups after a failed delivery attempt. 0 means no
    back-off."""
    steps_max: int = 2_000_000
    """Maximum number of steps of a checker's search for a sequential order of one object. Beyond
    it, the verdict is "unknown"."""

    def to_json(self) -> dict[str, Json]:
        """Return these properties of the run as JSON, in the form that test.json uses."""
        data: dict[str, Json] = {part.name: getattr(self, part.name) for part in fields(self)}
        data["allowed"] = sorted(self.allowed)
        for name in ("clients", "nemeses"):
            data[name] = list(data[name])
        data["server_errors"] = [list(error) for error in self.server_errors]
        data["directory_checks"] = [
            {"node": check.node, "is_sound": check.is_sound, "detail": check.detail}
            for check in self.directory_checks
        ]
        return data

    @staticmethod
    def from_json(data: Mapping[str, Json]) -> "RunFacts":
        """Parse the properties of a run from test.json. Missing properties get their defaults."""
        known = {part.name for part in fields(RunFacts)}
        given = {name: value for name, value in data.items() if name in known}
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
    """Anomalies that one checker has found. They determine its verdict."""

    def __init__(self, checker: str) -> None:
        self.figures: dict[str, Json] = {}
        self.undecided: list[str] = []
        """One sentence for each part of the history that the checker could not decide."""
        self._checker = checker
        self._count: dict[str, int] = {}
        self._kept: list[Finding] = []
        self._shortages: dict[str, str] = {}

    def add(
        self, anomaly: str, detail: str, operations: Iterable[int] = (), key: str | None = None
    ) -> None:
        """Add one anomaly, its description, and the operations or events that prove it. `key` names
        the partition."""
        count = self._count[anomaly] = self._count.get(anomaly, 0) + 1
        if count <= FINDINGS_KEPT_MAX:
            self._kept.append(Finding(anomaly, detail, tuple(operations), key))

    def add_shortage(self, anomaly: str, detail: str) -> None:
        """Add an anomaly of the run itself: there were too few operations or faults for a
        conclusion about the cluster.

        A slow machine can also cause such a shortage, so the verdict becomes "unknown" and never
        False.
        """
        self.add(anomaly, detail)
        self._shortages[anomaly] = detail

    def verdict(self, facts: RunFacts, *, allowed: frozenset[str] = frozenset()) -> Verdict:
        """Return the checker's verdict, which follows from the collected anomalies. `allowed` are
        the names of the anomalies that never fail this checker."""
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
        # Findings that fail the run come first.
        kept = tuple(sorted(self._kept, key=lambda finding: finding.anomaly not in bad))
        return Verdict(self._checker, valid, dict(self._count), kept, dict(self.figures), reason)


def combined(verdicts: Iterable[Verdict]) -> Validity:
    """Combine several verdicts into one. Returns False if any verdict is False. Otherwise returns
    "unknown" if any verdict is unknown or if there are no verdicts. Returns True in all other
    cases."""
    seen = [verdict.valid for verdict in verdicts]
    if any(valid is False for valid in seen):
        return False
    return "unknown" if not seen or "unknown" in seen else True
