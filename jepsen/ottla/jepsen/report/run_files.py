"""The contents of a run's test.json and results.json.

The module is pure. A run that ended early has fewer entries. A run without a verdict is "unknown".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla.jepsen.checkers.verdict import Finding, Validity, Verdict
from ottla.jepsen.history import Json

SEVERITY: Mapping[Validity, int] = {False: 0, "unknown": 1, True: 2}
SIGNS: Mapping[Validity, str] = {True: "✓", False: "✗", "unknown": "?"}
"""Sign (character) that stands for each verdict, readable without colour."""
VALIDITY_WORDS: Mapping[Validity, str] = {True: "valid", False: "invalid", "unknown": "unknown"}
"""Name of each verdict, as text and as a CSS class of the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """The contents of one run's test.json and results.json."""

    test: Mapping[str, Json] = field(default_factory=dict)
    """Content of the run's test.json: the plan of the run."""
    results: Mapping[str, Json] = field(default_factory=dict)
    """Content of the run's results.json: the verdict on the run."""

    @property
    def workload(self) -> str:
        """Name of the run's workload."""
        return _names(self.test.get("workload")) or "a workload"

    @property
    def nemesis(self) -> str:
        """Names of the planned faults of the run, or "none"."""
        return _names(self.test.get("nemesis") or self.test.get("nemeses")) or "none"

    @property
    def clients(self) -> str:
        """The names of the client libraries that the run used."""
        return _names(self.test.get("clients"))

    @property
    def started(self) -> str:
        """Start time of the run as text, for example "2026-01-01 12:00:00 UTC". A time that is not
        ISO 8601 in UTC is returned unchanged."""
        started = str(self.test.get("started") or "")
        return re.sub(r"^(\S{10})T(\d\d:\d\d:\d\d)(\.\d+)?(Z|\+00:00)$", r"\1 \2 UTC", started)

    @property
    def planted(self) -> str | None:
        """Name of the deliberate bug that the run's servers contained, or None."""
        planted = self.test.get("planted")
        return str(planted) if planted else None

    @property
    def is_secure(self) -> bool:
        """True if the cluster of the run used TLS, authentication and ACLs."""
        return bool(self.test.get("secure"))

    @property
    def title(self) -> str:
        """Name of the run in headings."""
        under = "without faults" if self.nemesis == "none" else f"under {self.nemesis}"
        planted = f" (planted: {self.planted})" if self.planted else ""
        secure = ", secure" if self.is_secure else ""
        return f"{self.workload} {under}{secure}{planted}"

    @property
    def command(self) -> str:
        """The command line that repeats the run."""
        return str(self.results.get("command") or self.test.get("command") or "")

    @property
    def valid(self) -> Validity:
        """Combined verdict of all checkers on the run."""
        valid = self.results.get("valid")
        return valid if isinstance(valid, bool) else "unknown"

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """Verdict of each checker on the run, the worst first."""
        rows = self.results.get("verdicts") or []
        return sorted(map(_verdict, rows), key=lambda verdict: SEVERITY[verdict.valid])

    @property
    def findings(self) -> Sequence[tuple[Verdict, Finding]]:
        """Every anomaly in the run's results.json, with the verdict that contains it."""
        return [(verdict, finding) for verdict in self.verdicts for finding in verdict.findings]

    @property
    def searches(self) -> Mapping[str, Mapping[str, Json]]:
        """For each register (such as a committed offset) whose calls fit no order, the longest
        order that was found."""
        found: dict[str, Mapping[str, Json]] = {}
        for verdict in self.verdicts:
            if verdict.valid is False and isinstance(verdict.figures.get("linear"), dict):
                found.update(verdict.figures["linear"])
        return found

    @property
    def reason(self) -> str:
        """Text that names the failed checkers with their anomalies; "" for a valid run."""
        return str(self.results.get("reason") or "")

    def figure(self, name: str) -> float | None:
        """Return a statistic by name from the run's results, or else from the first verdict that
        has it. Returns None if it is missing."""
        for figures in (self.results.get("figures") or {}, *(v.figures for v in self.verdicts)):
            value = figures.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
        return None


def _verdict(row: Mapping[str, Json]) -> Verdict:
    findings = tuple(
        Finding(
            str(one.get("anomaly")),
            str(one.get("detail") or ""),
            tuple(one.get("operations") or ()),
            one.get("key"),
        )
        for one in row.get("findings") or ()
    )
    valid = row.get("valid")
    return Verdict(
        str(row.get("checker", "?")),
        valid if isinstance(valid, bool) else "unknown",
        row.get("findings_count") or {},
        findings,
        row.get("figures") or {},
        row.get("reason"),
    )


def _names(value: Json) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value or "")
