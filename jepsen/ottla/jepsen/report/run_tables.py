"""The tables of a run page: checkers, faults, facts, files.

Pure.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from ottla.jepsen.checkers.verdict import Verdict
from ottla.jepsen.history import Json
from ottla.jepsen.report.faults import Fault
from ottla.jepsen.report.markup import Markup, element, joined
from ottla.jepsen.report.page import tag
from ottla.jepsen.report.scales import clock_words
from ottla.jepsen.report.told import Told, validity_class, validity_sign
from ottla.jepsen.report.words import count_words, many, seconds_words, shortened

FAULTS_SHOWN_MAX = 400
FILES_SHOWN_MAX = 300
ERRORS_SHOWN_MAX = 15
PARTS_MAX = 12
DRAWN = {"linear"}
FIGURE_MAX = 240
"""Characters of one figure or fact; longer ones are in the files."""
WORDS_OF = {True: "valid", False: "invalid", "unknown": "unknown"}
TOLD_ELSEWHERE = {"command", "workload", "nemesis", "clients", "started", "plan", "test"}


def table(heads: Sequence[str], rows: Iterable[Markup], numbers: Sequence[str] = ()) -> Markup:
    """Return a table that scrolls by itself when it is wider than the page."""
    cells = [element("th", name, class_="number" if name in numbers else None) for name in heads]
    whole = element("table", element("thead", element("tr", *cells)), element("tbody", *rows))
    return element("div", whole, class_="wide")


def checkers_table(verdicts: Sequence[Verdict]) -> Markup:
    """Return a row for each checker."""
    if not verdicts:
        return element("p", "No checker has spoken yet.", class_="muted")
    return table(("checker", "verdict", "what it found", "figures"), map(_checker_row, verdicts))


def _checker_row(verdict: Verdict) -> Markup:
    class_ = validity_class(verdict.valid)
    found = ", ".join(f"{name} × {count_words(n)}" for name, n in verdict.findings_count.items())
    said = set(found.split(", "))
    why = verdict.reason if not set((verdict.reason or "").split(", ")) <= said else ""
    return element(
        "tr",
        element("td", element("strong", verdict.checker)),
        element("td", tag(f"{validity_sign(verdict.valid)} {WORDS_OF[verdict.valid]}", class_)),
        element("td", "; ".join(filter(None, (found, why))) or "nothing"),
        element("td", _figure_words(verdict.figures), class_="small muted"),
    )


def _figure_words(figures: Mapping[str, Json]) -> str:
    told = []
    for name, value in figures.items():
        if value in ({}, [], ""):
            continue
        if isinstance(value, bool) or value is None:
            words = {True: "yes", False: "no", None: "–"}[value]
        elif isinstance(value, int | float):
            words = count_words(value)
        elif name in DRAWN or (isinstance(value, list | dict) and len(value) > PARTS_MAX):
            continue  # Drawn in a picture, or too long to be read here; results.json has it all.
        elif isinstance(value, dict):
            words = ", ".join(f"{part} {_short(one)}" for part, one in value.items())
        else:
            words = shortened(json.dumps(value, ensure_ascii=False), FIGURE_MAX)
        told.append(f"{name.replace('_', ' ')}: {words}")
    return " · ".join(told)


def _short(value: Json) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return count_words(value)
    return shortened(value if isinstance(value, str) else json.dumps(value), 40)


def faults_table(faults: Sequence[Fault]) -> Iterable[Markup]:
    """Yield a summary by kind of fault, and below it every single one."""
    if not faults:
        return
    yield element("h2", "Faults")
    kinds: dict[str, list[Fault]] = {}
    for fault in faults:
        kinds.setdefault(fault.name, []).append(fault)
    yield element(
        "p",
        joined((tag(f"{name} × {len(those)}") for name, those in kinds.items()), " "),
    )
    rows = [_fault_row(fault) for fault in faults[:FAULTS_SHOWN_MAX]]
    heads = ("at", "fault", "nodes", "for", "what was done")
    more = len(faults) - len(rows)
    said = f", the first {FAULTS_SHOWN_MAX} shown" if more > 0 else ""
    yield element(
        "details", element("summary", f"{many(len(faults), 'fault')}{said}"), table(heads, rows)
    )


def _fault_row(fault: Fault) -> Markup:
    lasted = "a moment" if fault.end_ns == fault.start_ns else seconds_words(fault.seconds)
    at = clock_words(fault.start_ns / 1e9)
    return element(
        "tr",
        element("td", element("a", at, href=f"timeline.html#e{fault.index}")),
        element("td", fault.name),
        element("td", ", ".join(fault.nodes) or "–"),
        element("td", "until the end" if fault.is_open else lasted),
        element("td", shortened(fault.detail, FIGURE_MAX), class_="small muted"),
    )


def errors_table(told: Told) -> Iterable[Markup]:
    """Yield what clients were told when it was not ok, the most frequent first."""
    errors = told.results.get("errors")
    if not isinstance(errors, dict) or not errors:
        return
    ordered = sorted(errors.items(), key=lambda item: -_whole(item[1]))
    rows = [
        element(
            "tr",
            element("td", count_words(_whole(count)), class_="number"),
            element("td", shortened(str(error), FIGURE_MAX), class_="mono"),
        )
        for error, count in ordered[:ERRORS_SHOWN_MAX]
    ]
    yield element("h2", "Errors clients were told")
    yield table(("times", "error"), rows, numbers=("times",))
    if len(ordered) > len(rows):
        yield element("p", f"and {many(len(ordered) - len(rows), 'other error')}", class_="muted")


def _whole(count: Json) -> int:
    return count if isinstance(count, int) else 1


def facts_table(told: Told) -> Iterable[Markup]:
    """Yield what was to be done, and loudly what could not be done on this machine."""
    skipped = told.test.get("skipped")
    if skipped:
        rows = skipped.items() if isinstance(skipped, dict) else ((name, "") for name in skipped)
        yield element("h2", "Not done on this machine")
        shown = [
            element("tr", element("td", element("strong", name)), element("td", why or "–"))
            for name, why in rows
        ]
        yield table(("fault", "why"), shown)
    facts = {
        k: v for k, v in told.test.items() if k not in TOLD_ELSEWHERE and v not in (None, [], {})
    }
    facts.pop("skipped", None)
    rows_ = [
        element("tr", element("td", name), element("td", _fact_words(value), class_="mono"))
        for name, value in facts.items()
    ]
    if rows_:
        yield element("h2", "Facts of the test")
        yield element(
            "details", element("summary", many(len(rows_), "fact")), table(("name", "value"), rows_)
        )


def _fact_words(value: Json) -> str:
    words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(words, 4 * FIGURE_MAX)


def files_list(files: Sequence[str]) -> Iterable[Markup]:
    """Yield links to everything else in the run's directory."""
    if not files:
        return
    yield element("h2", "Files")
    links = [element("li", element("a", name, href=name)) for name in files[:FILES_SHOWN_MAX]]
    yield element("ul", *links, class_="links")
    if len(files) > FILES_SHOWN_MAX:
        yield element("p", f"and {many(len(files) - FILES_SHOWN_MAX, 'file')} more", class_="muted")
