"""index.html of a run: its verdict in one sentence, then what supports it.

Pure.  Order of the page: verdict, figures, findings with the operations that prove them, pictures,
what each checker said, faults, files, the command that runs it again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.jepsen.checkers.verdict import Finding, Verdict
from ottla.jepsen.history import History, Kind, Operation
from ottla.jepsen.report.faults import Fault
from ottla.jepsen.report.frame import Picture
from ottla.jepsen.report.markup import Markup, element, joined
from ottla.jepsen.report.measures import final_reads_ns
from ottla.jepsen.report.page import command_box, page_text, tag
from ottla.jepsen.report.run_tables import (
    checkers_table,
    errors_table,
    facts_table,
    faults_table,
    files_list,
    table,
)
from ottla.jepsen.report.shown import places_of_events
from ottla.jepsen.report.told import Told, blame_words, validity_class, validity_sign
from ottla.jepsen.report.words import (
    KIND_WORDS,
    count_words,
    many,
    operation_words,
    seconds_words,
    shortened,
    where_words,
)

OPERATIONS_SHOWN_MAX = 12
"""Of one finding; a cycle of more is better read in the timeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """Everything a run page is made of."""

    told: Told
    history: History
    faults: Sequence[Fault]
    pictures: Sequence[Picture] = ()
    key_pages: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    """(words, path) of each key's own pictures."""
    files: Sequence[str] = ()
    """Paths below the run's directory, of what else lies there."""
    matrix_path: str | None = None


def run_page(parts: RunParts) -> str:
    """Return the page."""
    told = parts.told
    crumbs = []
    if parts.matrix_path is not None:
        crumbs.append(element("a", "all runs", href=parts.matrix_path))
    crumbs.append(element("span", f"{' › ' if crumbs else ''}{told.title}"))
    when = " · ".join(filter(None, (told.started, told.clients and f"clients: {told.clients}")))
    body = [
        element("p", *crumbs, class_="crumbs"),
        element("h1", told.title),
        element("p", when, class_="muted small"),
        _verdict_box(parts),
        _figures(parts),
        _jump(told),
        *_findings(parts),
        *_pictures(parts),
        element("h2", "What each checker said", id="checkers"),
        checkers_table(told.verdicts),
        *faults_table(parts.faults),
        *errors_table(told),
        *_again(told),
        *facts_table(told),
        *files_list(parts.files),
    ]
    return page_text(f"{validity_sign(told.valid)} {told.title}", element("main", *body))


def verdict_sentence(parts: RunParts) -> str:
    """Return the verdict in one sentence."""
    told, operations = parts.told, parts.history.operations()
    lasted = seconds_words(round(parts.history.end_ns / 1e9))
    load = f"{many(len(operations), 'operation')} over {lasted}"
    struck = (
        f"while {many(len(parts.faults), 'fault')} struck" if parts.faults else "without faults"
    )
    if told.valid is True:
        looked = many(len(told.verdicts), "checker")
        return f"Valid: {looked} found nothing wrong in {load} {struck}."
    why = blame_words(told).rstrip(".")
    if told.valid is False:
        planted = f" The bug planted here, {told.planted}, was found." if told.planted else ""
        return f"Invalid: {why or 'a checker objected'}, in {load} {struck}.{planted}"
    return f"Unknown, which is not a pass: {why or 'there is no verdict'}; {load} {struck}."


def _jump(told: Told) -> Markup:
    places = [("findings", "Findings")] if told.findings else []
    places += [("pictures", "Pictures"), ("checkers", "Checkers"), ("again", "Run it again")]
    links = [element("a", words, href=f"#{place}") for place, words in places]
    timeline = element("a", "Timeline", href="timeline.html")
    return element("nav", *links, timeline, class_="jump", aria_label="on this page")


def _verdict_box(parts: RunParts) -> Markup:
    valid = parts.told.valid
    return element(
        "div",
        element("span", validity_sign(valid), class_="sign", aria_hidden="true"),
        element("p", shortened(verdict_sentence(parts), 600)),
        class_=f"verdict {validity_class(valid)}",
        role="status",
    )


def _figures(parts: RunParts) -> Markup:
    operations = parts.history.operations()
    told = parts.told
    count = dict.fromkeys((Kind.OK, Kind.INFO, Kind.FAIL), 0)
    for operation in operations:
        count[operation.kind] += 1
    seconds = load_seconds(parts.history)
    rate = told.figure("ops_per_s")
    if rate is None:
        rate = len(operations) / seconds if seconds else 0.0
    recovery = told.recovery_s()
    rows: list[tuple[str, str, str]] = [
        ("operations", count_words(len(operations)), ""),
        ("a second", count_words(round(rate)), "ops/s"),
        ("ok", share_words(count[Kind.OK], len(operations)), ""),
        ("unknown", count_words(count[Kind.INFO]), ""),
        ("failed", count_words(count[Kind.FAIL]), ""),
        ("faults", count_words(len(parts.faults)), ""),
    ]
    if recovery is not None:
        rows.append(("recovery p99", f"{recovery:.2f}", "s"))
    rows.append(("load for", seconds_words(round(seconds)), ""))
    told_rows = [
        element("div", element("dt", name), element("dd", value, " " * bool(unit), _small(unit)))
        for name, value, unit in rows
    ]
    return element("dl", *told_rows, class_="figures")


def load_seconds(history: History) -> float:
    """Return how long load was sent, without the final reads."""
    final_ns = final_reads_ns(history.operations())
    return (history.end_ns if final_ns is None else final_ns) / 1e9


def share_words(part: int, whole: int) -> str:
    """Return a share in percent that says 100 % only when nothing is missing."""
    if not whole:
        return "–"
    share = 100 * part / whole
    return f"{share:.0f} %" if part == whole else f"{min(share, 99.99):.2f} %"


def _small(words: str) -> Markup:
    return element("small", words) if words else Markup("")


def _findings(parts: RunParts) -> Iterable[Markup]:
    findings = parts.told.findings
    if not findings:
        return
    operations = parts.history.operations()
    places = places_of_events(
        operations, (i for _, finding in findings for i in finding.operations)
    )
    grouped: dict[tuple[str, str], list[tuple[Verdict, Finding]]] = {}
    for verdict, finding in findings:
        grouped.setdefault((verdict.checker, finding.anomaly), []).append((verdict, finding))
    yield element("h2", "Findings", id="findings")
    for (checker, anomaly), group in grouped.items():
        verdict = group[0][0]
        count = int(verdict.findings_count.get(anomaly, len(group)))
        is_allowed = verdict.valid is True or not _blamed(verdict, anomaly)
        shown = f", the first {len(group)} shown" if count > len(group) else ""
        yield element(
            "h3",
            f"{anomaly} × {count_words(count)} ",
            element("span", f"{checker}{shown}", class_="muted small"),
            *([" ", tag("allowed")] if is_allowed else []),
        )
        boxes = [_finding(finding, is_allowed, operations, places, parts) for _, finding in group]
        shown_count = 2 if len(grouped) <= 3 else 1
        first, rest = boxes[:shown_count], boxes[shown_count:]
        yield from first
        if rest:
            yield element("details", element("summary", f"{len(rest)} more"), *rest)


def _blamed(verdict: Verdict, anomaly: str) -> bool:
    """Return whether an anomaly is among the reasons of a verdict; without reasons all are."""
    return not verdict.reason or anomaly in verdict.reason


def _finding(
    finding: Finding,
    is_allowed: bool,
    operations: Sequence[Operation],
    places: Mapping[int, int],
    parts: RunParts,
) -> Markup:
    chosen = sorted({places[index] for index in finding.operations if index in places})
    rows = [_proof(operations[place], finding.key) for place in chosen[:OPERATIONS_SHOWN_MAX]]
    inner: list[Markup] = [element("p", finding.detail)]
    if rows:
        names = ("at", "process", "outcome", "client", "operation")
        inner.append(table(names, rows))
    if len(chosen) > OPERATIONS_SHOWN_MAX:
        inner.append(
            element(
                "p",
                f"and {many(len(chosen) - OPERATIONS_SHOWN_MAX, 'operation')} more",
                class_="muted small",
            )
        )
    links = parts.key_pages.get(finding.key or "", ())
    if links:
        shown = [element("a", words, href=path) for words, path in links]
        inner.append(element("p", f"{finding.key}: ", joined(shown, " · "), class_="small"))
    return element("div", *inner, class_="finding allowed" if is_allowed else "finding")


def _proof(operation: Operation, key: str | None) -> Markup:
    invoke = operation.invoke
    word = KIND_WORDS[operation.kind]
    at = element("a", f"{invoke.time_ns / 1e9:.3f} s", href=f"timeline.html#e{invoke.index}")
    error = operation.completion.error if operation.completion is not None else None
    did = operation_words(operation, key) + (f" – {shortened(error, 160)}" if error else "")
    return element(
        "tr",
        element("td", at),
        element("td", str(invoke.process)),
        element("td", word, class_=f"{operation.kind.value}-word"),
        element("td", where_words(operation.extra) or "–"),
        element("td", did, class_="mono"),
    )


def _pictures(parts: RunParts) -> Iterable[Markup]:
    yield element("h2", "Pictures", id="pictures")
    yield element(
        "p",
        element("a", "Timeline of all operations", href="timeline.html"),
        " – who did what when, what overlapped, and what each fault struck. All pictures share "
        "their time axis; the lanes above a plot name the faults, and the same spans are shaded.",
    )
    for picture in parts.pictures:
        alone = element("a", "open alone", href=f"{picture.name}.svg", class_="muted")
        yield element("div", picture.inline(), element("p", alone), class_="figure")


def _again(told: Told) -> Iterable[Markup]:
    if told.command:
        yield element("h2", "Run it again", id="again")
        yield command_box(told.command)
