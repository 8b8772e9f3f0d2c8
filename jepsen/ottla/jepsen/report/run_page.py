"""index.html of a run: the verdict in one sentence, and then the evidence.

The module is pure. The sections of the page are, in this order: verdict, statistics, anomalies with
the operations that prove them, latencies and plots, checkers, faults, errors, files, the command
that repeats the run.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.jepsen.checkers.verdict import Finding, Verdict
from ottla.jepsen.history import EventKind, History, Json, Operation
from ottla.jepsen.report.faults import Fault
from ottla.jepsen.report.figures import MISSING, OVER_TIME, RECOVERY, RECOVERY_COUNTS, Plot
from ottla.jepsen.report.markup import Markup, element, joined
from ottla.jepsen.report.measures import final_reads_s, groups_of, is_final, quantile, took_ns
from ottla.jepsen.report.page import (
    breadcrumbs,
    figures_list,
    page_text,
    table,
    tag,
    verdict_box,
    verdict_tag,
)
from ottla.jepsen.report.run_files import SIGNS, RunFiles
from ottla.jepsen.report.timeline import HEADS, cells_of, places_of_events
from ottla.jepsen.report.words import (
    KIND_WORDS,
    clock_words,
    count_words,
    duration_words,
    many,
    seconds_words,
    share_words,
    shortened,
)

PROOFS_MAX = 12
"""Maximum number of operations that a run's page lists with one anomaly. A longer cycle is easier
to read in the timeline."""
FAULTS_MAX, FILES_MAX, ERRORS_MAX, PARTS_MAX = 400, 300, 15, 12
FIGURE_CHARACTERS_MAX = 240
"""Length limit in characters of one statistic or fact on the page. The run's files have longer
texts in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """The contents of a run's HTML page, collected before the page is written."""

    files: RunFiles
    history: History
    faults: Sequence[Fault]
    plots: Sequence[Plot] | None = ()
    """Plots of the run. None if they cannot be drawn because matplotlib is missing."""
    key_tables: Sequence[Markup] = ()
    """For each key (partition) with an anomaly, a table of its log or of its longest order of
    calls."""
    other_files: Sequence[str] = ()
    """Paths of further files of the run, relative to the run's directory."""


def run_page(parts: RunParts) -> str:
    """Return the HTML page of a run as text."""
    files = parts.files
    when = " · ".join(filter(None, (files.started, files.clients and f"clients: {files.clients}")))
    places = ["findings"] * bool(files.findings) + ["pictures", "checkers", "faults", "again"]
    return page_text(
        f"{SIGNS[files.valid]} {files.title}",
        breadcrumbs(element("a", "all runs", href="../../index.html"), f" › {files.title}"),
        element("h1", files.title),
        element("p", when, class_="muted small"),
        verdict_box(files.valid, shortened(verdict_sentence(parts), 600)),
        figures_list(_figures(parts)),
        element(
            "p",
            *(element("a", place, href=f"#{place}") for place in places),
            element("a", "timeline of all operations", href="timeline.html"),
            class_="jump",
        ),
        *_findings(parts),
        *[element("h2", "Keys of findings")] * bool(parts.key_tables),
        *parts.key_tables,
        element("h2", "Latencies and pictures", id="pictures"),
        _latencies(parts.history),
        *([element("p", f"The {MISSING}.")] if parts.plots is None else []),
        *_recovery_words(parts),
        *(plot.box() for plot in parts.plots or ()),
        element("h2", "Checkers", id="checkers"),
        _checkers(files.verdicts),
        *_faults(parts.faults),
        *_errors(files),
        *_skipped(files),
        element("h2", "Repeat the run", id="again"),
        element("pre", files.command or "The run's files have no command."),
        *_files(parts.other_files),
    )


def verdict_sentence(parts: RunParts) -> str:
    """Return the verdict on a run in one sentence."""
    files, operations = parts.files, parts.history.operations()
    lasted = seconds_words(round(parts.history.end_ns / 1e9))
    faults = f"under {many(len(parts.faults), 'fault')}" if parts.faults else "without faults"
    load = f"{many(len(operations), 'operation')} over {lasted} {faults}"
    if files.valid is True:
        return f"Valid: {many(len(files.verdicts), 'checker')} found nothing wrong in {load}."
    why = files.reason.rstrip(".")
    if files.valid is False:
        planted = f" The planted bug, {files.planted}, was found." if files.planted else ""
        return f"Invalid: {why or 'a checker objected'}, in {load}.{planted}"
    return f"Unknown, which is not a pass: {why or 'there is no verdict'}; {load}."


def _figures(parts: RunParts) -> Iterable[tuple[str, str]]:
    operations = parts.history.operations()
    final_s = final_reads_s(operations)
    seconds = parts.history.end_ns / 1e9 if final_s is None else final_s
    count = {kind: sum(one.kind is kind for one in operations) for kind in KIND_WORDS}
    rate = parts.files.figure("ops_per_s")
    if rate is None:
        rate = len(operations) / seconds if seconds else 0.0
    yield "operations", count_words(len(operations))
    yield "rate", f"{count_words(round(rate))} ops/s"
    yield "ok", share_words(count[EventKind.OK], len(operations))
    yield "unknown", count_words(count[EventKind.INFO])
    yield "failed", count_words(count[EventKind.FAIL])
    yield "faults", count_words(len(parts.faults))
    recovery = parts.files.figure("recovery_p99_s")
    if recovery is not None:
        value = f"{recovery:.2f} s"
        is_drawn = any(plot.name == RECOVERY for plot in parts.plots or ())
        yield "recovery p99", element("a", value, href=f"#{RECOVERY}") if is_drawn else value
    yield "load", seconds_words(round(seconds))


def _recovery_words(parts: RunParts) -> Iterable[Markup]:
    """Yield an explanation of recovery times for a run's page, unless the caption of a picture
    already explains them."""
    is_drawn = any(plot.name == RECOVERY for plot in parts.plots or ())
    if parts.files.figure("recovery_p99_s") is not None and not is_drawn:
        yield element("p", RECOVERY_COUNTS, class_="muted small")


def _findings(parts: RunParts) -> Iterable[Markup]:
    findings = parts.files.findings
    if not findings:
        return
    operations = parts.history.operations()
    indexes = (index for _, finding in findings for index in finding.operations)
    places = places_of_events(operations, indexes)
    grouped: dict[tuple[str, str], list[tuple[Verdict, Finding]]] = {}
    for verdict, finding in findings:
        grouped.setdefault((verdict.checker, finding.anomaly), []).append((verdict, finding))
    yield element("h2", "Findings", id="findings")
    for (checker, anomaly), group in grouped.items():
        verdict = group[0][0]
        count = int(verdict.findings_count.get(anomaly, len(group)))
        # An anomaly that is not among the reasons of its verdict is allowed.
        is_allowed = verdict.valid is True or anomaly not in (verdict.reason or anomaly)
        first = f", the first {len(group)} listed" if count > len(group) else ""
        words = element("span", f"{checker}{first}", class_="muted small")
        allowed = [" ", tag("allowed")] * is_allowed
        yield element("h3", f"{anomaly} × {count_words(count)} ", words, *allowed)
        boxes = []
        for _, finding in group:
            chosen = sorted({places[index] for index in finding.operations if index in places})
            proofs = [operations[place] for place in chosen]
            boxes.append(_finding(finding, proofs, is_allowed))
        open_count = 2 if len(grouped) <= 3 else 1
        yield from boxes[:open_count]
        if boxes[open_count:]:
            summary = element("summary", f"{len(boxes) - open_count} more")
            yield element("details", summary, *boxes[open_count:])


def _finding(finding: Finding, proofs: Sequence[Operation], is_allowed: bool) -> Markup:
    inner: list[Markup] = [element("p", finding.detail)]
    rows = []
    for one in proofs[:PROOFS_MAX]:
        at, *rest = cells_of(one, finding.key)
        rows.append([element("a", at, href=f"timeline.html#e{one.invoke.index}"), *rest])
    if rows:
        inner.append(table(HEADS, rows))
    if len(proofs) > PROOFS_MAX:
        inner.append(element("p", f"and {many(len(proofs) - PROOFS_MAX, 'operation')} more"))
    return element("div", *inner, class_="finding allowed" if is_allowed else "finding")


def _latencies(history: History) -> Markup:
    load = groups_of(one for one in history.operations() if not is_final(one))
    rows = []
    for f, operations in load.items():
        count = {kind: sum(one.kind is kind for one in operations) for kind in KIND_WORDS}
        took = sorted(took_ns(one) for one in operations if one.kind is EventKind.OK)
        shares = [duration_words(quantile(took, s)) if took else "–" for s in (0.5, 0.95, 0.99, 1)]
        rows.append([f, *(count_words(count[kind]) for kind in KIND_WORDS), *shares])
    heads = ("operation", *KIND_WORDS.values(), "median of ok", "95 %", "99 %", "slowest")
    return table(heads, rows)


def _checkers(verdicts: Sequence[Verdict]) -> Markup:
    if not verdicts:
        return element("p", "No checker has a verdict yet.", class_="muted")
    rows = []
    for one in verdicts:
        found = [f"{name} × {n}" for name, n in one.findings_count.items()]
        if not set((one.reason or "").split(", ")) <= set(found):
            found.append(one.reason or "")
        figures = element("td", _figure_words(one.figures), class_="small muted")
        words = "; ".join(filter(None, found)) or "nothing"
        rows.append((element("strong", one.checker), verdict_tag(one.valid), words, figures))
    return table(("checker", "verdict", "findings", "figures"), rows, class_="text")


def _figure_words(figures: Mapping[str, Json]) -> str:
    words = []
    for name, value in figures.items():
        # Longer values have a page of their own or are only in results.json.
        is_long = isinstance(value, list | dict) and len(value) > PARTS_MAX
        is_long = is_long or name.endswith(OVER_TIME)
        if value not in ({}, [], "") and name != "linear" and not is_long:
            words.append(f"{name.replace('_', ' ')}: {_short(value)}")
    return " · ".join(words)


def _short(value: Json) -> str:
    if value is None or isinstance(value, bool):
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int | float):
        return count_words(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {shortened(_short(part), 40)}" for name, part in value.items())
    words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(words, FIGURE_CHARACTERS_MAX)


def _faults(faults: Sequence[Fault]) -> Iterable[Markup]:
    yield element("h2", "Faults", id="faults")
    if not faults:
        yield element("p", "The run had none.", class_="muted")
        return
    counts = Counter(fault.name for fault in faults)
    yield element("p", joined((tag(f"{name} × {n}") for name, n in counts.items()), " "))
    rows = []
    for fault in faults[:FAULTS_MAX]:
        lasted = "a moment" if fault.end_ns == fault.start_ns else seconds_words(fault.seconds)
        at = clock_words(fault.start_ns / 1e9)
        rows.append(
            (
                element("a", at, href=f"timeline.html#e{fault.index}"),
                fault.name,
                ", ".join(fault.nodes) or "–",
                "until the end" if fault.is_open else lasted,
                shortened(fault.detail, FIGURE_CHARACTERS_MAX),
            )
        )
    first = f", the first {FAULTS_MAX} listed" if len(faults) > FAULTS_MAX else ""
    summary = element("summary", f"{many(len(faults), 'fault')}{first}")
    yield element("details", summary, table(("at", "fault", "nodes", "length", "details"), rows))


def _errors(files: RunFiles) -> Iterable[Markup]:
    errors = files.results.get("errors")
    if not isinstance(errors, dict) or not errors:
        return
    ordered = sorted(errors.items(), key=lambda item: (-item[1], item[0]))
    yield element("h2", "Errors that clients got")
    rows = (
        (count_words(n), shortened(name, FIGURE_CHARACTERS_MAX)) for name, n in ordered[:ERRORS_MAX]
    )
    yield table(("times", "error"), rows)
    if len(ordered) > ERRORS_MAX:
        yield element("p", f"and {many(len(ordered) - ERRORS_MAX, 'other error')}", class_="muted")


def _skipped(files: RunFiles) -> Iterable[Markup]:
    skipped = files.test.get("skipped")
    if skipped:
        reasons = skipped if isinstance(skipped, dict) else dict.fromkeys(skipped)
        yield element("h2", "Faults this machine cannot do")
        yield table(("fault", "reason"), ((name, why or "–") for name, why in reasons.items()))


def _files(names: Sequence[str]) -> Iterable[Markup]:
    if names:
        yield element("h2", "Files")
        links = (element("li", element("a", name, href=name)) for name in names[:FILES_MAX])
        yield element("ul", *links, class_="files small")
