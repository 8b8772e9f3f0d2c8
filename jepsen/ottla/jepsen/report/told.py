"""What a run's files say of it: test.json and results.json, as far as they are there.

Pure.  A run that ended early has less to tell; what is missing is not shown, and a run without a
verdict is "unknown".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla.jepsen.checkers.verdict import Finding, Validity, Verdict
from ottla.jepsen.history import Json
from ottla.jepsen.report.words import count_words, many


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One run, as its files tell it."""

    test: Mapping[str, Json] = field(default_factory=dict)
    """test.json: what was to be done, and how."""
    results: Mapping[str, Json] = field(default_factory=dict)
    """results.json: what came of it."""

    @property
    def workload(self) -> str:
        """Return the workload's name."""
        return _words(self.test.get("workload")) or "a workload"

    @property
    def nemesis(self) -> str:
        """Return the names of the faults, "none" when there were none to be."""
        return _words(self.test.get("nemesis") or self.test.get("nemeses")) or "none"

    @property
    def clients(self) -> str:
        """Return the names of the clients."""
        return _words(self.test.get("clients"))

    @property
    def started(self) -> str:
        """Return when the run began: "2026-01-01 12:00:00 UTC" of what ISO 8601 writes."""
        told = str(self.test.get("started") or "")
        return re.sub(r"^(\S{10})T(\d\d:\d\d:\d\d)(\.\d+)?(Z|\+00:00)$", r"\1 \2 UTC", told)

    @property
    def planted(self) -> str | None:
        """Return the name of the bug that was planted into the servers, if one was."""
        planted = self.test.get("planted")
        return str(planted) if planted else None

    @property
    def title(self) -> str:
        """Return what the run is called in headings."""
        under = "without faults" if self.nemesis == "none" else f"under {self.nemesis}"
        planted = f" (planted: {self.planted})" if self.planted else ""
        return f"{self.workload} {under}{planted}"

    @property
    def command(self) -> str:
        """Return the command that runs it again."""
        return str(self.results.get("command") or self.test.get("command") or "")

    @property
    def concurrency(self) -> int | None:
        """Return the number of threads, if it was written down."""
        told = self.test.get("concurrency") or self.test.get("threads")
        return told if isinstance(told, int) else None

    @property
    def valid(self) -> Validity:
        """Return the verdict of all checkers."""
        told = self.results.get("valid", "unknown")
        return told if isinstance(told, bool) else "unknown"

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """Return what each checker said; in the order of results.json, the bad ones first."""
        told = self.results.get("verdicts") or self.results.get("checkers") or []
        rows = list(told.values()) if isinstance(told, dict) else told
        verdicts = [_verdict(row) for row in rows]
        return sorted(verdicts, key=lambda verdict: SEVERITY[verdict.valid])

    @property
    def findings(self) -> Sequence[tuple[Verdict, Finding]]:
        """Return every finding that was kept, with the verdict it belongs to."""
        return [(verdict, finding) for verdict in self.verdicts for finding in verdict.findings]

    @property
    def searches(self) -> Mapping[str, Mapping[str, Json]]:
        """Return, by register, what searches for an order kept of those that have none."""
        found: dict[str, Mapping[str, Json]] = {}
        for verdict in self.verdicts:
            if verdict.valid is False and isinstance(verdict.figures.get("linear"), dict):
                found.update(verdict.figures["linear"])
        return found

    def recovery_s(self) -> float | None:
        """Return the p99 of the seconds between a fault's end and good service, if measured."""
        return self.figure("recovery_p99_s", "recovery_s.p99", "recovery_s_p99")

    def figure(self, *names: str) -> float | None:
        """Return the first of these figures that the results or one of their verdicts have.

        "recovery_s.p99" is the part "p99" of the figure "recovery_s".
        """
        for figures in (self.results.get("figures") or {}, *(v.figures for v in self.verdicts)):
            for name in names:
                value: Json = figures
                for part in name.split("."):
                    value = value.get(part) if isinstance(value, dict) else None
                if isinstance(value, int | float) and not isinstance(value, bool):
                    return float(value)
        return None


WORST = ("lost-write", "inconsistent-offsets", "duplicate", "aborted-read", "G1a", "truncated-read")
"""Anomalies that are named first; of the others the most frequent."""
ANOMALIES_NAMED_MAX = 4


def blame_words(told: Told) -> str:
    """Return why a run is not valid: which checker found what, the worst first."""
    if told.valid is False:
        words = [_blame(verdict) for verdict in told.verdicts if verdict.valid is False]
    else:
        unsure = [verdict for verdict in told.verdicts if verdict.valid == "unknown"]
        words = [f"{verdict.checker}: {verdict.reason or 'no reason given'}" for verdict in unsure]
    return "; ".join(words) or str(told.results.get("reason") or "")


def _blame(verdict: Verdict) -> str:
    reason = verdict.reason or ""
    counts = {name: n for name, n in verdict.findings_count.items() if name in reason}
    if not counts:
        return f"{verdict.checker}: {reason or 'no reason given'}"
    rank = {name: place for place, name in enumerate(WORST)}
    ordered = sorted(counts, key=lambda name: (rank.get(name, len(WORST)), -counts[name]))
    named = [f"{name} × {count_words(counts[name])}" for name in ordered[:ANOMALIES_NAMED_MAX]]
    more = len(ordered) - len(named)
    rest = f" and {many(more, 'other anomaly')}" if more else ""
    return f"{verdict.checker} found {', '.join(named)}{rest}"


SEVERITY: Mapping[Validity, int] = {False: 0, "unknown": 1, True: 2}


def validity_class(valid: Validity) -> str:
    """Return the theme's class of a verdict."""
    return (
        {True: "valid", False: "invalid"}.get(valid, "unknown") if valid != "unknown" else "unknown"
    )


def validity_sign(valid: Validity) -> str:
    """Return the sign of a verdict, which says it without colour."""
    return "✓" if valid is True else "✗" if valid is False else "?"


def _verdict(row: Mapping[str, Json]) -> Verdict:
    findings = tuple(
        Finding(
            str(told.get("anomaly")),
            str(told.get("detail") or ""),
            tuple(told.get("operations") or ()),
            told.get("key"),
        )
        for told in row.get("findings") or ()
    )
    valid = row.get("valid", "unknown")
    return Verdict(
        str(row.get("checker", "?")),
        valid if isinstance(valid, bool) else "unknown",
        row.get("findings_count") or {},
        findings,
        row.get("figures") or {},
        row.get("reason"),
    )


def _words(told: Json) -> str:
    if isinstance(told, list | tuple):
        return ", ".join(map(str, told))
    return str(told) if told else ""
