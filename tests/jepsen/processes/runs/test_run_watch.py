"""Anomalies reported while a run is in progress."""

from ottla.jepsen.history import Event, EventKind, Json
from ottla.jepsen.processes.runs.run_watch import RunWatch


def _watched(*operations: tuple[str, EventKind, Json]) -> RunWatch:
    watch = RunWatch()
    for index, (f, kind, value) in enumerate(operations):
        watch.take(Event(2 * index, index, 0, EventKind.INVOKE, f, None))
        watch.take(Event(2 * index + 1, index, 0, kind, f, value))
    return watch


def test_one_offset_with_two_values_shows() -> None:
    watch = _watched(
        ("send", EventKind.OK, [["send", "q-0", [3, 7]]]),
        ("poll", EventKind.OK, [["poll", {"q-0": [[3, 8]]}]]),
    )

    assert watch.anomalies == {"inconsistent-offsets": 1}
    assert watch.anomaly_count == 1


def test_one_value_at_two_offsets_shows() -> None:
    watch = _watched(("poll", EventKind.OK, [["poll", {"q-0": [[3, 7], [4, 7]]}]]))

    assert watch.anomalies == {"duplicate": 1}


def test_a_producer_id_given_twice_shows() -> None:
    watch = _watched(
        ("init", EventKind.OK, [5, 0]),
        ("init", EventKind.OK, [5, 1]),
        ("init", EventKind.OK, [5, 0]),
    )

    assert watch.anomaly_count == 1


def test_what_did_not_surely_happen_says_nothing() -> None:
    watch = _watched(
        ("send", EventKind.OK, [["send", "q-0", [3, 7]]]),
        ("send", EventKind.OK, [["send", "q-0", [None, 8]]]),
        ("send", EventKind.INFO, [["send", "q-0", [3, 9]]]),
        ("poll", EventKind.FAIL, [["poll", {"q-0": [[3, 9]]}]]),
        ("poll", EventKind.OK, [["poll"]]),
        ("describe", EventKind.OK, {"topic": "t"}),
    )

    assert watch.anomaly_count == 0
    assert watch.operation_count == 6
    assert watch.kinds[EventKind.OK] == 4
