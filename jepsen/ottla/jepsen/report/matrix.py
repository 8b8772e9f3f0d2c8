"""index.html of a store: workload × nemesis, a cell the latest run of both.

Pure.  A run with a planted bug is no cell: it belongs to the list of bugs that must be found, where
red is what is wanted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.jepsen.checkers.verdict import Validity
from ottla.jepsen.report.markup import Markup, element, joined
from ottla.jepsen.report.page import page_text, tag
from ottla.jepsen.report.run_tables import table
from ottla.jepsen.report.told import SEVERITY, Told, blame_words, validity_class, validity_sign
from ottla.jepsen.report.words import count_words, many, seconds_words, shortened

OLDER_SHOWN_MAX = 6
COLUMNS_MAX = 6
BAD_NAMED_MAX = 12

STYLE = """
main.matrix{max-width:none}
.cells{border-collapse:separate;border-spacing:6px;width:auto;margin-left:-6px}
.cells th,.cells td{border:0;padding:0}.cells thead th{padding:0 2px 4px;vertical-align:bottom;
max-width:130px;font-size:13px;color:var(--ink)}
.cells tbody th{position:sticky;left:0;background:var(--ground);color:var(--ink);font-size:14px;
padding:8px 12px 8px 6px;vertical-align:middle;max-width:150px;z-index:1}
.cells td{min-width:150px;height:100%;vertical-align:top}
.cell{display:block;border:1px solid;border-radius:9px;padding:8px 10px;text-decoration:none;
color:var(--ink);font-size:13px;line-height:1.45;font-variant-numeric:tabular-nums}
a.cell:hover,a.cell:focus-visible{outline:2px solid var(--ink);outline-offset:1px}
.cell b{display:block;font-size:14px}.cell.valid b{color:var(--good)}
.cell.invalid b{color:var(--bad)}.cell.unknown b{color:var(--unsure)}
.cell span{display:block;color:var(--muted);white-space:nowrap}
.empty{border:1px dashed var(--line);border-radius:9px;color:var(--muted);text-align:center;
padding:22px 0;font-size:13px}
.older{font-size:13px;padding:3px 4px 0;white-space:nowrap}
.older a{text-decoration:none;margin-right:5px;font-weight:700}
.older .valid{background:none;color:var(--good)}
.older .invalid{background:none;color:var(--bad)}
.older .unknown{background:none;color:var(--unsure)}
"""
WORDS_OF: Mapping[Validity, str] = {True: "valid", False: "invalid", "unknown": "unknown"}


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run of the store: what its files tell, and where its page is."""

    told: Told
    path: str
    """Of its directory, from the store's."""
    is_finished: bool = True
    """Whether it came to a verdict."""


def matrix_page(runs: Sequence[StoredRun]) -> str:
    """Return the page; `runs` may be in any order."""
    ordered = sorted(runs, key=_age, reverse=True)
    plain = [run for run in ordered if run.told.planted is None]
    planted = [run for run in ordered if run.told.planted is not None]
    cells = _cells(plain)
    latest = [those[0] for those in cells.values()]
    body = [
        element("h1", "Runs against a real cluster"),
        element(
            "p",
            "Workloads under faults, judged by exact checkers; a cell is the latest run "
            "of its pair, the signs below it are earlier ones.",
            class_="muted small",
        ),
        _summary(latest),
        _totals(latest),
        _grid(cells) if cells else element("p", "There is no run yet.", class_="muted"),
        *_planted(planted),
        *_all_runs(ordered),
    ]
    title = f"{_sign_of(latest)} workload × nemesis"
    return page_text(title, element("main", *body, class_="matrix"), style=STYLE)


def _age(run: StoredRun) -> tuple[str, str]:
    return run.told.started, run.path


def _cells(runs: Iterable[StoredRun]) -> Mapping[tuple[str, str], list[StoredRun]]:
    cells: dict[tuple[str, str], list[StoredRun]] = {}
    for run in runs:
        cells.setdefault((run.told.workload, run.told.nemesis), []).append(run)
    return cells


def _worst(runs: Sequence[StoredRun]) -> Validity:
    seen = {run.told.valid for run in runs}
    if False in seen:
        return False
    return "unknown" if not seen or "unknown" in seen else True


def _sign_of(runs: Sequence[StoredRun]) -> str:
    return validity_sign(_worst(runs))


def _summary(latest: Sequence[StoredRun]) -> Markup:
    valid = _worst(latest)
    if not latest:
        sentence = "Nothing has been run."
    elif valid is True:
        sentence = f"All {many(len(latest), 'pair')} of workload and faults are valid."
        if len(latest) == 1:
            sentence = "The only pair of workload and faults that was run is valid."
    else:
        counts = [
            f"{sum(run.told.valid == one for run in latest)} {WORDS_OF[one]}"
            for one in (False, "unknown", True)
            if any(run.told.valid == one for run in latest)
        ]
        sentence = f"Of {many(len(latest), 'pair')} of workload and faults: {', '.join(counts)}."
    bad = [run for run in latest if run.told.valid is not True][:BAD_NAMED_MAX]
    links = (
        element("a", f"{validity_sign(r.told.valid)} {r.told.title}", href=f"{r.path}/index.html")
        for r in sorted(bad, key=lambda run: SEVERITY[run.told.valid])
    )
    named = [element("p", joined(links, " · "), class_="small")] if bad else []
    return element(
        "div",
        element("span", validity_sign(valid), class_="sign", aria_hidden="true"),
        element("div", element("p", sentence), *named),
        class_=f"verdict {validity_class(valid)}",
    )


def _totals(latest: Sequence[StoredRun]) -> Markup:
    def total(*names: str) -> float:
        return sum(run.told.figure(*names) or 0 for run in latest)

    recoveries = [r for run in latest if (r := run.told.recovery_s()) is not None]
    seconds = sum(float(run.told.test.get("seconds") or 0) for run in latest)
    rows = [
        ("pairs", count_words(len(latest))),
        ("operations", count_words(total("operations"))),
        ("faults", count_words(total("faults", "faults_count"))),
        ("load for", seconds_words(seconds)),
    ]
    if recoveries:
        rows.append(("worst recovery p99", f"{max(recoveries):.2f} s"))
    told = [element("div", element("dt", name), element("dd", value)) for name, value in rows]
    return element("dl", *told, class_="figures")


def _grid(cells: Mapping[tuple[str, str], list[StoredRun]]) -> Markup:
    workloads = sorted({workload for workload, _ in cells})
    nemeses = sorted(
        {nemesis for _, nemesis in cells}, key=lambda n: (n != "none", n.count(","), n)
    )
    # The longer side goes down the page: a page scrolls down better than sideways.
    is_turned = len(nemeses) > max(COLUMNS_MAX, len(workloads))
    down, across = (nemeses, workloads) if is_turned else (workloads, nemeses)
    head = element("tr", element("th"), *(element("th", name, scope="col") for name in across))
    rows = []
    for name in down:
        row = [element("th", name, scope="row")]
        for other in across:
            runs = cells.get((other, name) if is_turned else (name, other))
            empty = element("div", "not run", class_="empty")
            row.append(element("td", *(_cell(runs) if runs else [empty])))
        rows.append(element("tr", *row))
    whole = element("table", element("thead", head), element("tbody", *rows), class_="cells")
    return element("div", whole, class_="wide", style="margin-top:22px")


def _cell(runs: Sequence[StoredRun]) -> Iterable[Markup]:
    run = runs[0]
    told = run.told
    rate, faults = told.figure("ops_per_s"), told.figure("faults", "faults_count")
    recovery = told.recovery_s()
    did = (
        None if rate is None else f"{count_words(round(rate))} ops/s",
        None if faults is None else many(faults, "fault"),
    )
    lines = [" · ".join(words for words in did if words)]
    if recovery is not None:
        lines.append(f"recovery p99 {recovery:.2f} s")
    if not run.is_finished:
        lines.append("did not finish")
    yield element(
        "a",
        element("b", f"{validity_sign(told.valid)} {WORDS_OF[told.valid]}"),
        *(element("span", line) for line in lines if line),
        class_=f"cell {validity_class(told.valid)}",
        href=f"{run.path}/index.html",
        title=shortened(" · ".join(filter(None, (told.started, blame_words(told)))), 300) or None,
    )
    if len(runs) > 1:
        older = [_sign_link(one) for one in runs[1 : 1 + OLDER_SHOWN_MAX]]
        more = len(runs) - 1 - len(older)
        yield element("div", *older, f"+{more}" if more > 0 else "", class_="older")


def _sign_link(run: StoredRun) -> Markup:
    return element(
        "a",
        validity_sign(run.told.valid),
        href=f"{run.path}/index.html",
        class_=validity_class(run.told.valid),
        title=f"{run.told.started} {WORDS_OF[run.told.valid]}".strip(),
    )


def _planted(runs: Sequence[StoredRun]) -> Iterable[Markup]:
    if not runs:
        return
    yield element("h2", "Planted bugs")
    yield element(
        "p",
        "The same runs against servers with a bug planted into them: here a run must be invalid, "
        "or the checkers have lost their teeth. The latest run of each bug.",
        class_="muted small",
    )
    latest: dict[str, StoredRun] = {}
    for run in runs:
        latest.setdefault(run.told.planted or "", run)
    rows = (_planted_row(latest[bug]) for bug in sorted(latest))
    yield table(("bug", "workload under faults", "found", "by", ""), rows)


def _planted_row(run: StoredRun) -> Markup:
    told = run.told
    if not run.is_finished or told.valid == "unknown":
        found = tag("? unknown" if run.is_finished else "? did not finish", "unknown")
    else:
        is_found = told.valid is False
        found = tag("✓ found", "valid") if is_found else tag("✗ not found", "invalid")
    return element(
        "tr",
        element("td", element("strong", told.planted or "")),
        element("td", f"{told.workload} under {told.nemesis}"),
        element("td", found),
        element("td", shortened(blame_words(told), 200)),
        element("td", element("a", "run", href=f"{run.path}/index.html")),
    )


def _all_runs(runs: Sequence[StoredRun]) -> Iterable[Markup]:
    if not runs:
        return
    yield element("h2", "All runs")
    heads = ("started", "workload", "faults", "clients", "verdict", "ops/s", "why")
    yield element(
        "details",
        element("summary", many(len(runs), "run")),
        table(heads, map(_run_row, runs), numbers=("ops/s",)),
    )


def _run_row(run: StoredRun) -> Markup:
    told = run.told
    rate = told.figure("ops_per_s")
    planted = f" ({told.planted})" if told.planted else ""
    valid = f"{validity_sign(told.valid)} {WORDS_OF[told.valid]}"
    return element(
        "tr",
        element("td", element("a", told.started or run.path, href=f"{run.path}/index.html")),
        element("td", told.workload),
        element("td", f"{told.nemesis}{planted}"),
        element("td", told.clients or "–"),
        element("td", tag(valid, validity_class(told.valid))),
        element("td", "–" if rate is None else count_words(round(rate)), class_="number"),
        element("td", shortened(blame_words(told), 200)),
    )
