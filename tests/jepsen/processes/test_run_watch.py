"""Anomalies that show while a run goes on."""

from ottla.jepsen.history import Event, Json, Kind
from ottla.jepsen.processes.run_watch import Watch


def _watched(*operations: tuple[str, Kind, Json]) -> Watch:
    watch = Watch()
    for index, (f, kind, value) in enumerate(operations):
        watch.take(Event(2 * index, index, 0, Kind.INVOKE, f, None))
        watch.take(Event(2 * index + 1, index, 0, kind, f, value))
    return watch


def test_one_offset_with_two_values_shows() -> None:
    watch = _watched(
        ("send", Kind.OK, [["send", "q-0", [3, 7]]]),
        ("poll", Kind.OK, [["poll", {"q-0": [[3, 8]]}]]),
    )

    assert watch.anomalies == {"inconsistent-offsets": 1}
    assert watch.anomaly_count == 1


def test_one_value_at_two_offsets_shows() -> None:
    watch = _watched(("poll", Kind.OK, [["poll", {"q-0": [[3, 7], [4, 7]]}]]))

    assert watch.anomalies == {"duplicate": 1}


def test_a_producer_id_given_twice_shows() -> None:
    watch = _watched(
        ("init", Kind.OK, [5, 0]), ("init", Kind.OK, [5, 1]), ("init", Kind.OK, [5, 0])
    )

    assert watch.anomaly_count == 1


def test_what_did_not_surely_happen_says_nothing() -> None:
    watch = _watched(
        ("send", Kind.OK, [["send", "q-0", [3, 7]]]),
        ("send", Kind.OK, [["send", "q-0", [None, 8]]]),
        ("send", Kind.INFO, [["send", "q-0", [3, 9]]]),
        ("poll", Kind.FAIL, [["poll", {"q-0": [[3, 9]]}]]),
        ("poll", Kind.OK, [["poll"]]),
        ("describe", Kind.OK, {"topic": "t"}),
    )

    assert watch.anomaly_count == 0
    assert watch.operation_count == 6
    assert watch.kinds[Kind.OK] == 4
