"""Which operations a timeline shows when it cannot show all, and in which columns and rows.

Pure.  First come those that prove a finding, with their neighbours; then those around the beginning
and end of faults, where most things happen; then the run from its beginning.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.jepsen.history import Event, History, Operation
from ottla.jepsen.report.faults import Fault

AROUND_FINDING = 25
"""Operations shown before and after one that proves something: what else went on there."""
AROUND_FAULT = 40
FAULTS_SHARE = 0.6
"""Of all that is shown, at most this for the surroundings of faults."""
NOTES_FROM = 1_000_000
"""Processes from here on note what happened to a client: they share a column with its thread."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the timeline: an event that is shown, or a gap where operations are left out."""

    event: Event | None
    left_out: int = 0


def chosen(
    operations: Sequence[Operation],
    proving: Iterable[int],
    faults: Sequence[Fault],
    operations_max: int,
) -> Sequence[Operation]:
    """Return the operations to show, in the order of their invocations.

    `proving` are indexes of events, of invocations or of completions.
    """
    if len(operations) <= operations_max:
        return operations
    places: set[int] = set()
    place_of = places_of_events(operations, proving)
    for place in sorted(place_of.values()):
        _take(
            places, place - AROUND_FINDING, place + AROUND_FINDING, len(operations), operations_max
        )
    limit = len(places) + int((operations_max - len(places)) * FAULTS_SHARE)
    times = [operation.invoke.time_ns for operation in operations]
    for fault in faults:
        for at_ns in (fault.start_ns, fault.end_ns):
            place = bisect_left(times, at_ns)
            _take(places, place - AROUND_FAULT, place + AROUND_FAULT, len(operations), limit)
    for place in range(len(operations)):
        if len(places) >= operations_max:
            break
        places.add(place)
    return [operations[place] for place in sorted(places)]


def places_of_events(operations: Sequence[Operation], indexes: Iterable[int]) -> Mapping[int, int]:
    """Return, by index of an event, the place of its operation among the operations."""
    wanted = set(indexes)
    found: dict[int, int] = {}
    if not wanted:
        return found
    for place, operation in enumerate(operations):
        if operation.invoke.index in wanted:
            found[operation.invoke.index] = place
        if operation.completion is not None and operation.completion.index in wanted:
            found[operation.completion.index] = place
    return found


def _take(places: set[int], first: int, last: int, count: int, limit: int) -> None:
    for place in range(max(0, first), min(count, last + 1)):
        if len(places) >= limit:
            return
        places.add(place)


def rows_of(history: History, shown: Sequence[Operation]) -> Sequence[Row]:
    """Return the events of the operations shown and of all faults, with the gaps between them."""
    begun = {operation.invoke.index for operation in shown}
    wanted = set(begun)
    wanted.update(o.completion.index for o in shown if o.completion is not None)
    rows: list[Row] = []
    left_out = 0
    for event in history.events:
        is_client = event.process >= 0
        if is_client and event.index not in wanted:
            left_out += event.kind == "invoke"
            continue
        if left_out:
            rows.append(Row(None, left_out))
            left_out = 0
        rows.append(Row(event))
    if left_out:
        rows.append(Row(None, left_out))
    return rows


def columns_of(operations: Iterable[Operation], concurrency: int | None) -> Mapping[int, int]:
    """Return each process' column: its thread where the concurrency is known.

    Else a process takes the first column whose process is gone permanently.
    """
    first: dict[int, int] = {}
    last: dict[int, tuple[int, bool]] = {}
    for operation in operations:
        process = operation.invoke.process
        first.setdefault(process, operation.invoke.index)
        last[process] = (operation.index, operation.kind == "info")
    if concurrency:
        threads = {process: _thread(process, concurrency) for process in first}
        order = {thread: i for i, thread in enumerate(sorted(set(threads.values())))}
        return {process: order[thread] for process, thread in threads.items()}
    columns: dict[int, int] = {}
    holders: list[int] = []
    for process in sorted(first, key=lambda one: first[one]):
        for column, holder in enumerate(holders):
            ended, is_gone = last[holder]
            if is_gone and ended < first[process] and (process < NOTES_FROM):
                holders[column] = process
                columns[process] = column
                break
        else:
            columns[process] = len(holders)
            holders.append(process)
    return columns


def _thread(process: int, concurrency: int) -> tuple[int, int]:
    return (1, process - NOTES_FROM) if process >= NOTES_FROM else (0, process % concurrency)
