"""Operations are counted in the window and the group they belong to, faults from start to end."""

from ottla.jepsen.history import NEMESIS, Event, EventKind, History, Json
from ottla.jepsen.report.faults import faults_of, merged_spans
from ottla.jepsen.report.measures import (
    NOTES_FROM,
    WINDOWS_MAX,
    groups_of,
    ok_latencies,
    quantile,
    rates,
    windows_of,
)

S = 1_000_000_000


def history_of(*rows: tuple[float, int, EventKind, str, Json], end_s: float = 100.0) -> History:
    """Return events (seconds, process, kind, f, value), and one at the end of the run."""
    events = [
        Event(i, int(at * S), process, kind, f, value)
        for i, (at, process, kind, f, value) in enumerate(rows)
    ]
    return History([*events, Event(len(events), int(end_s * S), 99, EventKind.INVOKE, "poll")])


def test_latencies_belong_to_the_window_of_the_start_and_rates_to_that_of_the_end() -> None:
    rows = [(0.0, i, EventKind.INVOKE, "send", i) for i in range(100)]
    rows += [((i + 1) / 1e3, i, EventKind.OK, "send", i) for i in range(99)]
    rows += [(7.0, 99, EventKind.FAIL, "send", 99)]
    operations = history_of(*rows).operations()[:100]
    windows = windows_of(100.0)
    latencies = ok_latencies(operations, windows)
    assert [quantile(latencies[0], share) // 10**6 for share in (0.5, 0.95, 1.0)] == [50, 95, 99]
    assert not any(latencies[1:])
    found = rates(operations, windows)
    assert found[EventKind.OK][0] == 99 / windows.step_s
    assert found[EventKind.FAIL][windows.of(7 * S)] == 1 / windows.step_s
    assert windows.of(100 * S) == windows.count - 1 < WINDOWS_MAX


def test_rare_operations_share_a_group_and_notes_have_none() -> None:
    rows = [(0.0, i, EventKind.INVOKE, "commit" if i else "init", None) for i in range(99)]
    rows += [
        (0.0, 100, EventKind.INVOKE, "send", None),
        (0.0, NOTES_FROM, EventKind.INVOKE, "send", None),
    ]
    groups = groups_of(history_of(*rows).operations())
    assert {f: len(those) for f, those in groups.items()} == {"commit": 98, "send, poll, init": 3}


def test_a_fault_lasts_from_its_start_to_its_end_with_the_details_of_its_injection() -> None:
    history = history_of(
        (10, NEMESIS, EventKind.INFO, "kill", {"phase": "start", "id": 1}),
        (10.1, NEMESIS, EventKind.INFO, "kill", {"phase": "injected", "id": 1, "nodes": ["b<1>"]}),
        (30, NEMESIS, EventKind.INFO, "kill", {"phase": "end", "id": 1}),
    )
    (fault,) = faults_of(history)
    assert (fault.start_ns, fault.end_ns, fault.nodes) == (10 * S, 30 * S, ("b<1>",))


def test_faults_overlap_are_never_closed_or_last_a_moment() -> None:
    history = history_of(
        (1, NEMESIS, EventKind.INFO, "pause", {"phase": "start", "nodes": ["b1"]}),
        (2, NEMESIS, EventKind.INFO, "reset", {"nodes": ["b2"], "clock_offsets_ms": {"b2": 4_000}}),
        (3, NEMESIS, EventKind.INFO, "kill", {"phase": "start"}),
        (5, NEMESIS, EventKind.INFO, "pause", {"phase": "end"}),
        (6, NEMESIS, EventKind.INFO, "loss", {"phase": "end"}),
    )
    pause, reset, kill = faults_of(history)
    assert (pause.seconds, pause.is_open) == (4, False)
    assert (reset.seconds, reset.nodes, reset.detail) == (0, ("b2",), "clock_offsets_ms=b2=4000")
    assert (kill.seconds, kill.is_open) == (97, True)
    assert merged_spans((f.start_ns, f.end_ns) for f in (pause, reset, kill)) == [(S, 100 * S)]
