"""timeline.html: the operations and the faults of a run, in the order of their start times.

The module is pure. Operations are left out so that the page stays below `BYTES_MAX`. Operations
that prove anomalies, and their neighbours, are kept first, then operations around the start and the
end of faults, then the first operations of the run.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from ottla.jepsen.history import History, Operation
from ottla.jepsen.report.faults import Fault
from ottla.jepsen.report.markup import element
from ottla.jepsen.report.page import breadcrumbs, page_text, table
from ottla.jepsen.report.words import (
    count_words,
    event_words,
    many,
    operation_words,
    outcome_words,
    shortened,
    where_words,
)

OPERATIONS_MAX = 6_000
BYTES_MAX = 1_900_000
AROUND_FINDING, AROUND_FAULT = 25, 40
"""Number of operations shown before and after each operation that proves an anomaly, and number
shown around the start and the end of each fault."""
FAULTS_SHARE = 0.6
"""Largest fraction of the timeline's operations that may be kept because they are close to a
fault."""
HEADS = ("at", "process", "outcome", "client", "operation")
STYLE = """
table{font-size:13px}td{padding:2px 14px 2px 0}.fault{color:var(--c4);font-weight:600}
:target{outline:3px solid var(--bad)}.proof{background:var(--bad-ground)}
body:has(#odd:checked) tr:has(b.ok):not(:has(.proof)){display:none}
"""


def timeline(
    history: History,
    faults: Sequence[Fault],
    *,
    title: str,
    proving: Iterable[int] = (),
    operations_max: int = OPERATIONS_MAX,
) -> str:
    """Return the HTML page with a run's operations and faults, as text. `proving` are the indexes
    of the events that prove anomalies. At most `operations_max` operations are shown."""
    operations, proving = history.operations(), set(proving)
    while True:
        kept = chosen(operations, proving, faults, operations_max)
        text = _page(history, kept, title, proving)
        if len(text.encode()) <= BYTES_MAX or operations_max <= 1:
            return text
        operations_max = min(operations_max, len(kept)) * 2 // 3


def chosen(
    operations: Sequence[Operation],
    proving: Iterable[int],
    faults: Sequence[Fault],
    operations_max: int,
) -> Sequence[Operation]:
    """Return the operations that the timeline shows, in the order of their start times. There are
    at most `operations_max`."""
    if len(operations) <= operations_max:
        return operations
    times = [operation.invoke.time_ns for operation in operations]
    moments = (ns for fault in faults for ns in (fault.start_ns, fault.end_ns))
    places: set[int] = set()

    def add(middles: Iterable[int], around: int, limit: int) -> None:
        near = (p for m in middles for p in range(max(0, m - around), m + around + 1))
        new = (p for p in dict.fromkeys(near) if p < len(operations) and p not in places)
        places.update(list(islice(new, max(0, limit - len(places)))))

    add(sorted(places_of_events(operations, proving).values()), AROUND_FINDING, operations_max)
    limit = len(places) + int((operations_max - len(places)) * FAULTS_SHARE)
    add((bisect_left(times, ns) for ns in moments), AROUND_FAULT, limit)
    add(range(len(operations)), 0, operations_max)
    return [operations[place] for place in sorted(places)]


def places_of_events(operations: Sequence[Operation], indexes: Iterable[int]) -> Mapping[int, int]:
    """Return, for each index of an event in the history, the position in `operations` of the
    operation that the event belongs to."""
    wanted = set(indexes)
    found: dict[int, int] = {}
    for place, operation in enumerate(operations if wanted else ()):
        for index in (operation.invoke.index, operation.index):
            if index in wanted:
                found[index] = place
    return found


def _page(history: History, kept: Sequence[Operation], title: str, proving: set[int]) -> str:
    count = len(history.operations())
    words = f"All {many(count, 'operation')} of the run."
    if count > len(kept):
        words = (
            f"{count_words(len(kept))} of {many(count, 'operation')}: those of findings and those "
            "around the start and end of faults first, then the run from its start. "
            f"{count_words(count - len(kept))} are left out, in the places that say so."
        )
    switch = element("input", type="checkbox", id="odd")
    return page_text(
        f"Timeline of {title}",
        breadcrumbs(element("a", "the run", href="index.html"), " › timeline"),
        element("h1", f"Timeline of {title}"),
        element("p", f"{words} Red rows are of findings.", class_="muted small"),
        element("label", switch, " only faults, findings and what was not ok"),
        table(HEADS, _rows(history, kept, proving)),
        style=STYLE,
    )


def _rows(
    history: History, kept: Sequence[Operation], proving: set[int]
) -> Iterable[Sequence[object]]:
    by_index = {one.invoke.index: one for one in kept}
    left_out = 0
    for event in history.events:
        one = by_index.get(event.index)
        if one is None and event.process >= 0:
            left_out += event.kind == "invoke"
            continue
        if left_out:
            yield (element("td", f"{many(left_out, 'operation')} left out", colspan=5),)
            left_out = 0
        if one is not None:
            at, *rest = cells_of(one)
            is_proof = not proving.isdisjoint((one.invoke.index, one.index))
            class_ = "proof" if is_proof else None
            yield element("td", at, id=f"e{event.index}", class_=class_), *rest
        else:
            at, words = f"{event.time_ns / 1e9:.3f} s", shortened(event_words(event), 200)
            yield (
                element("td", at, id=f"e{event.index}"),
                element("td", words, colspan=4, class_="fault"),
            )
    if left_out:
        yield (element("td", f"{many(left_out, 'operation')} left out", colspan=5),)


def cells_of(one: Operation, key: str | None = None) -> Sequence[object]:
    """Return the cells of an operation's row in the timeline, one for each column of `HEADS`. With
    `key`, the cell of the operation contains the records of this key, and the number of all other
    records."""
    words, error = operation_words(one, key), one.completion.error if one.completion else None
    return (
        f"{one.invoke.time_ns / 1e9:.3f} s",
        str(one.invoke.process),
        element("b", outcome_words(one), class_=one.kind.value),
        where_words(one.extra) or "–",
        f"{words} – {shortened(error, 160)}" if error else words,
    )
