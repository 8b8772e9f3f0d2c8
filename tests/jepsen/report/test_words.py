"""Numbers and operations in words."""

import pytest

from ottla.jepsen.history import Event, EventKind, Json, Operation
from ottla.jepsen.report.words import (
    WORDS_MAX,
    clock_words,
    count_words,
    duration_words,
    many,
    operation_words,
    outcome_words,
    seconds_words,
)


def operation(f: str, asked: Json, came: Json = None, kind: EventKind = EventKind.OK) -> Operation:
    """Return an operation that took 4.25 ms."""
    return Operation(
        Event(0, 1_000_000, 3, EventKind.INVOKE, f, asked), Event(1, 5_250_000, 3, kind, f, came)
    )


@pytest.mark.parametrize(
    ("ns", "words"),
    [(0, "0 s"), (999, "999 ns"), (1_000, "1 µs"), (4_250_000, "4.25 ms"), (99_960_000, "100 ms"),
     (999_960_000, "1 s"), (12_345_000_000, "12.3 s")],
)  # fmt: skip
def test_a_duration_has_three_digits_and_its_unit(ns: int, words: str) -> None:
    assert duration_words(ns) == words


def test_counts_and_lengths_of_time() -> None:
    assert [count_words(v) for v in (0, 1234, 2.5, 12_345_678)] == ["0", "1,234", "2.5", "12.3 M"]
    assert count_words(0.99951) == "0.99951", "a share that is not whole does not look so"
    assert [seconds_words(s) for s in (2.31, 45, 125, 180, 4800)] == [
        "2.31 s", "45 s", "2 min 5 s", "3 min", "1 h 20 min",
    ]  # fmt: skip
    assert [many(n, "fault") for n in (0, 1, 2)] == ["0 faults", "1 fault", "2 faults"]
    assert many(2, "anomaly") == "2 anomalies"
    assert many(2, "key") == "2 keys"


def test_a_send_has_its_key_value_and_offset() -> None:
    asked = [["send", "q0-1", 17]]
    assert operation_words(operation("send", asked)) == "send q0-1 17"
    done = operation("send", asked, [["send", "q0-1", [334, 17]]])
    assert operation_words(done) == "send q0-1 17 → 334"
    lost = operation("send", asked, [["send", "q0-1", [None, 17]]])
    assert operation_words(lost) == "send q0-1 17 → ?"


def test_a_poll_lists_few_records_all_and_many_by_their_ends() -> None:
    few = operation("poll", [["poll"]], [["poll", {"q0-0": [[1, 10], [2, 11]]}]])
    assert operation_words(few) == "poll q0-0 1:10 2:11"
    records = [[i, i + 9] for i in range(50)]
    long = operation("poll", [["poll"]], [["poll", {"q0-0": records}]])
    assert operation_words(long) == "poll q0-0 0:9 … 49:58 (50)"
    nothing = operation("poll", [["poll"]], [["poll", {}]])
    assert operation_words(nothing) == "poll nothing"


def test_values_of_any_other_workload_have_words_of_bounded_length() -> None:
    assert operation_words(operation("commit", ["g", "q0-0", 5])) == "commit g, q0-0, 5"
    create = operation("create", {"topic": "t", "count": 3})
    assert operation_words(create) == "create topic=t count=3"
    assert operation_words(operation("init", None)) == "init –"
    assert len(operation_words(operation("describe", ["x" * 5_000]))) == WORDS_MAX


def test_an_outcome_has_its_time() -> None:
    assert outcome_words(operation("poll", None)) == "ok after 4.25 ms"
    failed = operation("send", None, kind=EventKind.FAIL)
    assert outcome_words(failed) == "failed after 4.25 ms"
    unanswered = Operation(Event(0, 0, 1, EventKind.INVOKE, "send"))
    assert outcome_words(unanswered) == "unknown, never answered"


def test_an_operation_on_many_keys_is_cut_to_the_key_of_a_finding() -> None:
    read = operation("poll", [["poll"]], [["poll", {"a": [[0, 1]], "b": [[7, 8]], "c": []}]])
    assert operation_words(read, "b") == "poll b 7:8, 2 other keys"


def test_times_of_a_run_are_those_of_a_clock() -> None:
    assert [clock_words(s) for s in (0, 59.6, 61, 3_600, 36_061)] == [
        "0:00", "1:00", "1:01", "1:00:00", "10:01:01",
    ]  # fmt: skip
