"""index.html of a store of runs: a table of nemesis × workload, whose cells link to the latest run
of each pair.

The module is pure. A run with a deliberate bug is not in the table but in a separate list, because
an invalid run is the expected result there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.jepsen.checkers.verdict import Validity
from ottla.jepsen.report.markup import Markup, element
from ottla.jepsen.report.page import (
    figures_list,
    page_text,
    table,
    tag,
    verdict_box,
    verdict_tag,
)
from ottla.jepsen.report.run_files import SEVERITY, SIGNS, VALIDITY_WORDS, RunFiles
from ottla.jepsen.report.words import count_words, many, seconds_words, shortened

HEADS = ("started", "run", "clients", "verdict", "ops/s", "reason")
STYLE = """
.cells{width:auto}.cells td{border:0;padding:3px;min-width:150px}
.cells th:first-child{position:sticky;left:0;background:var(--ground);border:0}
.cell{display:block;border:1px solid var(--k);background:var(--b);border-radius:9px;
padding:6px 10px;text-decoration:none;color:var(--muted);font-size:13px;white-space:nowrap}
.cell b{display:block;color:var(--k);font-size:14px}
"""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run in a store, as the store's page lists it."""

    files: RunFiles
    path: str
    """Path of the run's directory, relative to the directory of the store."""
    is_finished: bool = True
    """True if the run has a verdict. Runs without a verdict have no result to show."""

    @property
    def href(self) -> str:
        """Relative link from the store's page to the page of the run."""
        return f"{self.path}/index.html"


def matrix_page(runs: Sequence[StoredRun]) -> str:
    """Return the HTML page of a store as text. `runs` may be in any order."""
    ordered = sorted(runs, key=lambda run: (run.files.started, run.path), reverse=True)
    cells: dict[tuple[str, str], list[StoredRun]] = {}
    planted: dict[str, StoredRun] = {}
    for run in ordered:
        if run.files.planted is None:
            faults = f"{run.files.nemesis}{', secure' if run.files.is_secure else ''}"
            cells.setdefault((faults, run.files.workload), []).append(run)
        else:
            planted.setdefault(run.files.planted, run)
    latest = [those[0] for those in cells.values()]
    return page_text(
        f"{SIGNS[_worst(latest)]} workload × nemesis",
        element("h1", "Runs against a real cluster"),
        element(
            "p",
            "Workloads under faults, judged by checkers; a cell is the latest run of its pair.",
            class_="muted small",
        ),
        _summary(latest),
        figures_list(_totals(latest)),
        *[_grid(cells)] * bool(cells),
        *_planted([planted[bug] for bug in sorted(planted)]),
        *_all_runs(ordered),
        style=STYLE,
        class_="full",
    )


def _worst(runs: Sequence[StoredRun]) -> Validity:
    return min((run.files.valid for run in runs), key=lambda one: SEVERITY[one], default="unknown")


def _summary(latest: Sequence[StoredRun]) -> Markup:
    valid = _worst(latest)
    if not latest:
        return verdict_box(valid, "There is no run without a planted bug yet.")
    counts = [
        f"{sum(run.files.valid == one for run in latest)} {VALIDITY_WORDS[one]}"
        for one in SEVERITY
        if any(run.files.valid == one for run in latest)
    ]
    sentence = f"Of {many(len(latest), 'pair')} of workload and faults: {', '.join(counts)}."
    return verdict_box(valid, sentence)


def _totals(latest: Sequence[StoredRun]) -> Iterable[tuple[str, str]]:
    def total(name: str) -> float:
        return sum(run.files.figure(name) or 0 for run in latest)

    yield "pairs", count_words(len(latest))
    yield "operations", count_words(total("operations"))
    yield "faults", count_words(total("faults"))
    yield "load", seconds_words(sum(float(run.files.test.get("seconds") or 0) for run in latest))
    recoveries = [s for run in latest if (s := run.files.figure("recovery_p99_s")) is not None]
    if recoveries:
        yield "worst recovery p99", f"{max(recoveries):.2f} s"


def _grid(cells: Mapping[tuple[str, str], Sequence[StoredRun]]) -> Markup:
    workloads = sorted({workload for _, workload in cells})
    nemeses = sorted(
        {nemesis for nemesis, _ in cells}, key=lambda n: (n != "none", n.count(","), n)
    )
    rows = [
        [
            element("th", name, scope="row"),
            *(_cell(cells.get((name, one), ())) for one in workloads),
        ]
        for name in nemeses
    ]
    return table(("", *workloads), rows, class_="cells")


def _cell(runs: Sequence[StoredRun]) -> Markup:
    if not runs:
        return element("td", "not run", class_="muted small")
    files = runs[0].files
    rate, faults = files.figure("ops_per_s"), files.figure("faults")
    recovery = files.figure("recovery_p99_s")
    words = [
        f"{count_words(round(rate))} ops/s" if rate is not None else "",
        many(faults, "fault") if faults is not None else "",
        f"recovery p99 {recovery:.2f} s" if recovery is not None else "",
        "" if runs[0].is_finished else "did not finish",
    ]
    whole = element(
        "a",
        element("b", f"{SIGNS[files.valid]} {VALIDITY_WORDS[files.valid]}"),
        " · ".join(filter(None, words)),
        class_=f"cell {VALIDITY_WORDS[files.valid]}",
        href=runs[0].href,
        title=shortened(f"{files.started} {files.reason}", 300),
    )
    more = f"{len(runs) - 1} earlier below" if len(runs) > 1 else ""
    return element("td", whole, element("span", more, class_="muted small"))


def _planted(runs: Sequence[StoredRun]) -> Iterable[Markup]:
    if runs:
        yield element("h2", "Planted bugs")
        words = "The latest run of each bug; a run that is not invalid has missed its bug."
        yield element("p", words, class_="muted small")
        yield table(HEADS, map(_row, runs), class_="text")


def _all_runs(runs: Sequence[StoredRun]) -> Iterable[Markup]:
    if runs:
        yield element("h2", "All runs")
        summary = element("summary", many(len(runs), "run"))
        yield element("details", summary, table(HEADS, map(_row, runs), class_="text"))


def _row(run: StoredRun) -> Sequence[object]:
    files, rate = run.files, run.files.figure("ops_per_s")
    return (
        element("a", files.started or run.path, href=run.href),
        files.title,
        files.clients or "–",
        _outcome(run),
        "–" if rate is None else count_words(round(rate)),
        shortened(files.reason, 200),
    )


def _outcome(run: StoredRun) -> Markup:
    valid = run.files.valid
    if not run.is_finished:
        return tag("? did not finish", "unknown")
    if run.files.planted is None or valid == "unknown":
        return verdict_tag(valid)
    return tag("✗ not found", False) if valid else tag("✓ found", True)
