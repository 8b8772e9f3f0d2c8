"""The timeline shows each operation with its outcome, and lists the omitted ones."""

import re
from collections.abc import Callable
from xml.etree import ElementTree

from ottla.jepsen.history import EventKind, History, Recorder
from ottla.jepsen.report.faults import faults_of
from ottla.jepsen.report.timeline import BYTES_MAX, chosen, timeline


def rows_of(page: str) -> dict[int, list[str]]:
    """Return the texts of the rows by the index of their event."""
    tree = ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    return {
        int(row[0].get("id", "")[1:]): ["".join(cell.itertext()) for cell in row]
        for row in tree.iter("tr")
        if row[0].get("id")
    }


def test_each_operation_and_each_event_of_a_fault_has_a_row() -> None:
    clock = iter(range(1_000_000, 100_000_000, 1_000_000))
    recorder = Recorder(lambda: next(clock), concurrency=2)
    first = recorder.invoke(0, "send", [["send", "q0-0", 1]])
    second = recorder.invoke(1, "poll", [["poll"]])
    recorder.complete(first, EventKind.OK, [["send", "q0-0", [0, 1]]])
    recorder.nemesis("kill", {"phase": "start", "nodes": ["b1"]})
    recorder.complete(second, EventKind.INFO, None, "timed out <b>", {"client": "ottla"})
    history = recorder.history()
    page = timeline(history, faults_of(history), title="t", proving=[2])
    assert rows_of(page) == {
        0: ["0.001 s", "0", "ok after 2 ms", "–", "send q0-0 1 → 0"],
        1: ["0.002 s", "1", "unknown after 3 ms", "ottla", "poll – timed out <b>"],
        3: ["0.004 s", "kill start b1"],
    }
    assert re.findall(r'id="e(\d+)" class="proof"', page) == ["0"], "its answer is event 2"
    assert "All 2 operations of the run." in page


def test_too_many_operations_are_left_out_but_never_those_of_a_finding(
    queue_run: Callable[..., History],
) -> None:
    history = queue_run(6_000, seconds=60.0)
    operations, faults = history.operations(), faults_of(history)
    proving = [operations[-100].invoke.index, operations[-200].index]
    page = timeline(history, faults, title="t", proving=proving, operations_max=1_000)
    rows = rows_of(page)
    assert sum(len(row) == 5 for row in rows.values()) == 1_000
    assert {operations[-100].invoke.index, operations[-200].invoke.index} <= set(rows)
    assert operations[0].invoke.index in rows, "the start is there too"
    assert {fault.index for fault in faults} <= set(rows)
    gaps = re.findall(r">([\d,]+) operations? left out<", page)
    assert sum(int(gap.replace(",", "")) for gap in gaps) == len(operations) - 1_000
    assert f"{len(operations) - 1_000:,} are left out" in page


def test_the_neighbours_of_a_finding_come_before_anything_else(
    queue_run: Callable[..., History],
) -> None:
    operations = queue_run(2_000, seconds=20.0).operations()
    kept = chosen(operations, [operations[1_500].index], (), 51)
    assert list(kept) == list(operations[1_475:1_526])


def test_a_page_of_long_values_stays_below_its_bound() -> None:
    clock = iter(range(1, 100_000))
    recorder = Recorder(lambda: next(clock), concurrency=1)
    for i in range(9_000):
        invoke = recorder.invoke(0, "describe", [f"{i}-" + "x<>&" * 100])
        recorder.complete(invoke, EventKind.FAIL, None, "y" * 500)
    page = timeline(recorder.history(), (), title="t")
    assert len(page.encode()) <= BYTES_MAX
    assert len(rows_of(page)) > 1_000
    assert "are left out" in page
