"""Each operation has its bar, and what is left out is said."""

import re
from collections.abc import Callable
from xml.etree import ElementTree

from ottla.jepsen.history import History, Kind, Recorder
from ottla.jepsen.report.faults import faults_of
from ottla.jepsen.report.shown import chosen, columns_of
from ottla.jepsen.report.timeline import BYTES_MAX, ROW_PX, timeline


def bars_of(page: str) -> dict[int, ElementTree.Element]:
    """Return the bars by the index of their operation's first event."""
    tree = ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    return {int(e.get("id", "")[1:]): e for e in tree.iter("p") if e.get("id")}


def test_each_operation_has_a_bar_from_its_call_to_its_answer() -> None:
    clock = iter(range(1_000_000, 100_000_000, 1_000_000))
    recorder = Recorder(lambda: next(clock), concurrency=2)
    first = recorder.invoke(0, "send", [["send", "q0-0", 1]])
    second = recorder.invoke(1, "poll", [["poll"]])
    recorder.complete(first, Kind.OK, [["send", "q0-0", [0, 1]]])
    recorder.complete(second, Kind.INFO, None, "timed out <b>")
    third = recorder.invoke(3, "poll", [["poll"]])
    history = recorder.history()
    page = timeline(history, (), title="t", concurrency=2, proving=[2])
    bars = bars_of(page)
    assert set(bars) == {first.index, second.index, third.index}
    assert bars[0].get("style") == f"top:0px;height:{2 * ROW_PX - 1}px"
    assert bars[1].get("style") == f"top:{ROW_PX}px;height:{2 * ROW_PX - 1}px"
    assert bars[0].text == "send q0-0 1 → 0"
    assert bars[0].get("class") == "proof", "its answer is event 2"
    assert bars[1].get("class") == "i"
    assert "unknown after 2 ms: timed out <b>" in (bars[1].get("title") or "")
    assert "All 3 operations of the run." in page


def test_a_process_that_is_gone_leaves_its_column_to_the_next_one() -> None:
    clock = iter(range(1, 100))
    recorder = Recorder(lambda: next(clock), concurrency=2)
    both = [recorder.invoke(0, "poll"), recorder.invoke(1, "poll")]
    recorder.complete(both[0], Kind.INFO)
    recorder.complete(both[1], Kind.OK)
    recorder.complete(recorder.invoke(2, "poll"), Kind.OK)
    operations = recorder.history().operations()
    assert columns_of(operations, 2) == {0: 0, 1: 1, 2: 0}
    assert columns_of(operations, None) == {0: 0, 1: 1, 2: 0}


def test_too_many_operations_are_left_out_but_never_those_of_a_finding(
    queue_run: Callable[..., History],
) -> None:
    history = queue_run(6_000, seconds=60.0)
    operations = history.operations()
    faults = faults_of(history)
    proving = [operations[-100].invoke.index, operations[-200].index]
    page = timeline(history, faults, title="t", proving=proving, operations_max=1_000)
    bars = bars_of(page)
    assert len(bars) == 1_000
    assert {operations[-100].invoke.index, operations[-200].invoke.index} <= set(bars)
    assert operations[0].invoke.index in bars, "the beginning is shown too"
    assert f"{len(operations) - 1_000:,} are left out" in page
    gaps = re.findall(r">([\d,]+) operations? left out after", page)
    assert sum(int(gap.replace(",", "")) for gap in gaps) == len(operations) - 1_000
    for fault in faults:
        assert f'id="e{fault.index}"' in page


def test_what_surrounds_a_finding_is_shown_before_anything_else(
    queue_run: Callable[..., History],
) -> None:
    operations = queue_run(2_000, seconds=20.0).operations()
    shown = chosen(operations, [operations[1_500].index], (), 51)
    assert list(shown) == list(operations[1_475:1_526])


def test_a_page_of_long_values_stays_below_its_bound() -> None:
    clock = iter(range(1, 100_000))
    recorder = Recorder(lambda: next(clock), concurrency=1)
    for i in range(9_000):
        invoke = recorder.invoke(0, "describe", [f"{i}-" + "x<>&" * 100])
        recorder.complete(invoke, Kind.FAIL, None, "y" * 500)
    page = timeline(recorder.history(), (), title="t")
    assert len(page.encode()) <= BYTES_MAX
    assert len(bars_of(page)) > 1_000
    assert "are left out" in page
