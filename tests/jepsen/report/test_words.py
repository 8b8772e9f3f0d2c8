"""Numbers and operations are told as a person would."""

import pytest

from ottla.jepsen.history import Event, Json, Kind, Operation
from ottla.jepsen.report.words import (
    WORDS_MAX,
    count_words,
    duration_words,
    many,
    operation_words,
    outcome_words,
    seconds_words,
)


def operation(f: str, asked: Json, came: Json = None, kind: Kind = Kind.OK) -> Operation:
    """Return an operation that took 4.25 ms."""
    return Operation(
        Event(0, 1_000_000, 3, Kind.INVOKE, f, asked), Event(1, 5_250_000, 3, kind, f, came)
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


def test_a_send_tells_its_key_value_and_offset() -> None:
    asked = [["send", "q0-1", 17]]
    assert operation_words(operation("send", asked)) == "send q0-1 17"
    done = operation("send", asked, [["send", "q0-1", [334, 17]]])
    assert operation_words(done) == "send q0-1 17 → 334"
    lost = operation("send", asked, [["send", "q0-1", [None, 17]]])
    assert operation_words(lost) == "send q0-1 17 → ?"


def test_a_poll_tells_few_records_all_and_many_by_their_ends() -> None:
    few = operation("poll", [["poll"]], [["poll", {"q0-0": [[1, 10], [2, 11]]}]])
    assert operation_words(few) == "poll q0-0 1:10 2:11"
    records = [[i, i + 9] for i in range(50)]
    long = operation("poll", [["poll"]], [["poll", {"q0-0": records}]])
    assert operation_words(long) == "poll q0-0 0:9 … 49:58 (50)"
    nothing = operation("poll", [["poll"]], [["poll", {}]])
    assert operation_words(nothing) == "poll nothing"


def test_values_of_any_other_workload_are_told_too_and_never_too_long() -> None:
    assert operation_words(operation("commit", ["g", "q0-0", 5])) == "commit g, q0-0, 5"
    create = operation("create", {"topic": "t", "count": 3})
    assert operation_words(create) == "create topic=t count=3"
    assert operation_words(operation("init", None)) == "init –"
    assert len(operation_words(operation("describe", ["x" * 5_000]))) == WORDS_MAX


def test_an_outcome_tells_how_long_it_took_and_why_it_failed() -> None:
    assert outcome_words(operation("poll", None)) == "ok after 4.25 ms"
    failed = Operation(
        Event(0, 0, 1, Kind.INVOKE, "send"),
        Event(1, 2_000_000, 1, Kind.FAIL, "send", None, "NOT_LEADER_OR_FOLLOWER"),
    )
    assert outcome_words(failed) == "failed after 2 ms: NOT_LEADER_OR_FOLLOWER"
    assert outcome_words(Operation(Event(0, 0, 1, Kind.INVOKE, "send"))) == "never answered"
