"""Checkers of simulated worlds pass correct histories, and find each planted error."""

import random
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.testing.world.checkers import (
    LINES_MAX,
    at_least_once,
    bounded_lag,
    exactly_once,
    in_key_order,
    no_lost_dead_letter,
    settles,
)
from ottla.testing.world.errors import CheckFailedError
from ottla.testing.world.records import LagReading, WrittenRecord
from ottla.testing.world.timeline import TIMELINE, Timeline, TimelineEvent

VALUES = st.lists(st.binary(max_size=3), max_size=12)


def written(topic: str, values: list[bytes], *, key: bytes | None = b"k") -> list[WrittenRecord]:
    return [WrittenRecord(topic, 0, at, key, value) for at, value in enumerate(values)]


def value_of(record: WrittenRecord) -> bytes:
    assert record.value is not None
    return record.value


def failure_of(check: Callable[[], None]) -> CheckFailedError:
    with pytest.raises(CheckFailedError) as found:
        check()
    assert len(str(found.value).splitlines()) <= LINES_MAX
    return found.value


@given(VALUES, st.randoms(use_true_random=False))
def test_exactly_once_passes_any_order_of_the_same_values(
    values: list[bytes], rng: random.Random
) -> None:
    outputs = rng.sample(values, len(values))

    exactly_once(written("in", values), written("out", outputs), key=value_of)


@given(VALUES.filter(bool), st.data())
def test_exactly_once_finds_each_lost_repeated_or_invented_value(
    values: list[bytes], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(values) - 1))
    lost = [*values[:at], *values[at + 1 :]]
    inputs = written("in", values)

    error = failure_of(lambda: exactly_once(inputs, written("out", lost), key=value_of))
    assert error.keys == [values[at]]
    assert "has no output" in str(error)
    twice = written("out", [*values, values[at]])
    error = failure_of(lambda: exactly_once(inputs, twice, key=value_of))
    assert error.keys == [values[at]]
    assert "has more than one output" in str(error)
    invented = written("out", [*values, b"1234"])
    error = failure_of(lambda: exactly_once(inputs, invented, key=value_of))
    assert error.keys == [b"1234"]
    assert "has no input" in str(error)


def test_exactly_once_compares_outputs_of_another_form() -> None:
    inputs = written("in", [b"1", b"2"])
    rows = [("row", 2), ("row", 1)]

    exactly_once(inputs, rows, key=lambda r: int(r.value), output_key=lambda row: row[1])
    failure_of(
        lambda: exactly_once(
            inputs, rows[:1], key=lambda r: int(r.value), output_key=lambda row: row[1]
        )
    )


@given(VALUES, st.data())
def test_at_least_once_passes_repeats_and_finds_losses(
    values: list[bytes], data: st.DataObject
) -> None:
    repeats = data.draw(st.lists(st.sampled_from(values))) if values else []
    outputs = [*values, *repeats, b"1234"]
    inputs = written("in", values)

    at_least_once(inputs, written("out", outputs), key=value_of)
    for value in set(values):
        rest = written("out", [one for one in outputs if one != value])
        error = failure_of(partial(at_least_once, inputs, rest, key=value_of))
        assert error.keys == [value]


POSITIONS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=20)


@given(POSITIONS)
def test_in_key_order_agrees_with_sorting_the_positions_of_each_key(
    outputs: list[tuple[int, int]],
) -> None:
    def check() -> None:
        in_key_order(outputs, key=lambda one: one[0], order=lambda one: one[1])

    wrong = set()
    for key, _ in outputs:
        positions = [one[1] for one in outputs if one[0] == key]
        if positions != sorted(positions):
            wrong.add(key)
    if wrong:
        assert set(failure_of(check).keys) == wrong
    else:
        check()


@given(POSITIONS)
def test_in_key_order_counts_only_first_deliveries_if_repeats_are_allowed(
    outputs: list[tuple[int, int]],
) -> None:
    def check() -> None:
        in_key_order(outputs, key=lambda one: one[0], order=lambda one: one[1], allow_repeats=True)

    firsts = list(dict.fromkeys(outputs))
    is_sorted = all(
        [one[1] for one in firsts if one[0] == key]
        == sorted(one[1] for one in firsts if one[0] == key)
        for key in range(3)
    )
    if is_sorted:
        check()
    else:
        failure_of(check)


def test_in_key_order_names_both_outputs() -> None:
    outputs = written("out", [b"1", b"3", b"2"])

    error = failure_of(lambda: in_key_order(outputs, key=lambda r: r.key, order=value_of))

    assert "key b'k': b'3' is before b'2'" in str(error)
    assert "out-0@1" in str(error)
    assert "out-0@2" in str(error)


@given(VALUES.filter(bool), st.data())
def test_no_lost_dead_letter_finds_inputs_without_output_and_dead_letter(
    values: list[bytes], data: st.DataObject
) -> None:
    letters = data.draw(st.lists(st.sampled_from(values)))
    outputs = [one for one in values if one not in letters]
    inputs = written("in", values)

    def check(outputs: list[bytes], letters: list[bytes]) -> None:
        no_lost_dead_letter(inputs, written("out", outputs), written("dead", letters), key=value_of)

    check(outputs, letters)
    check(values, letters)  # an input may have both
    victim = data.draw(st.sampled_from(values))
    rest = [one for one in outputs if one != victim]
    error = failure_of(lambda: check(rest, [one for one in letters if one != victim]))
    assert error.keys == [victim]
    error = failure_of(lambda: check(outputs, [*letters, b"1234"]))
    assert error.keys == [b"1234"]
    assert "1 of" in str(error)
    assert "has no input" in str(error)


def readings(*pairs: tuple[float, int]) -> list[LagReading]:
    return [LagReading(at_s, lag, "billing") for at_s, lag in pairs]


def test_settles_passes_a_group_that_catches_up_in_time() -> None:
    settles(readings((0, 5), (9, 1), (10, 0), (30, 0)), within_s=10)
    settles(readings((0, 5), (10, 1), (11, 0)), within_s=10)
    settles(readings((0, 0)), within_s=10)


@pytest.mark.parametrize(
    "samples",
    [readings((0, 5), (11, 1), (12, 0)), readings((0, 0), (11, 1)), readings((0, 0), (99, 7))],
)
def test_settles_finds_lag_after_the_deadline(samples: list[LagReading]) -> None:
    error = failure_of(lambda: settles(samples, within_s=10))

    assert "the group billing still had a lag of" in str(error)


def test_settles_counts_from_the_last_fault() -> None:
    timeline = Timeline()
    timeline.add(TimelineEvent(5.0, "a", "kill", "killed"))
    samples = readings((0, 5), (14, 1), (15, 0))

    settles(samples, within_s=10, timeline=timeline)
    failure_of(lambda: settles(samples, within_s=8, timeline=timeline))
    failure_of(lambda: settles(samples, within_s=10, since_s=0.0, timeline=timeline))


def test_checks_of_lag_refuse_samples_that_prove_nothing() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        settles([], within_s=1)
    with pytest.raises(ValueError, match="at least one sample"):
        bounded_lag([], max_records=1)
    with pytest.raises(ValueError, match="needs samples until"):
        settles(readings((0, 5), (9, 1)), within_s=10)


@given(st.lists(st.integers(0, 9), min_size=1), st.integers(0, 9))
def test_bounded_lag_finds_any_larger_lag(lags: list[int], limit: int) -> None:
    samples = readings(*((float(at), lag) for at, lag in enumerate(lags)))

    if max(lags) <= limit:
        bounded_lag(samples, max_records=limit)
    else:
        error = failure_of(lambda: bounded_lag(samples, max_records=limit))
        assert f"The largest lag was {max(lags)}" in str(error)


def story() -> Timeline:
    timeline = Timeline()
    for number in range(400):
        timeline.add(TimelineEvent(number / 100, "a", "request", f"Fetch #{number} to broker-1"))
    facts: dict[str, str | int] = {"topic": "out", "partition": 0, "offset": 3, "last_offset": 5}
    timeline.add(TimelineEvent(4.0, "a", "answer", "Produce #1 from broker-1", facts))
    timeline.add(TimelineEvent(4.01, "a", "kill", "killed before OffsetCommit #1 was sent"))
    timeline.add(TimelineEvent(5.0, "b", "start", "start 1"))
    facts = {"topic": "out", "partition": 0, "offset": 6, "last_offset": 9, "life": 2}
    timeline.add(TimelineEvent(5.5, "b", "answer", "Produce #1 from broker-1", facts))
    return timeline


def test_a_message_names_the_instances_and_shows_what_happened_between() -> None:
    inputs = written("in", [b"0", b"1", b"2", b"3", b"4"])
    outputs = written("out", [b"0", b"1", b"2", b"3", b"4", b"?", b"3"])

    error = failure_of(
        lambda: exactly_once(inputs, outputs[:5] + outputs[6:], key=value_of, timeline=story())
    )

    text = str(error)
    assert "out-0@3 key=b'k' value=b'3', written by a at 4.000 s" in text
    assert "out-0@6 key=b'k' value=b'3', written by b (start 2) at 5.500 s" in text
    assert "killed before OffsetCommit #1 was sent" in text
    assert text.count("→ ") == 3  # the legend and both outputs


def test_a_message_uses_the_timeline_of_the_running_world() -> None:
    token = TIMELINE.set(story())
    try:
        error = failure_of(lambda: exactly_once(written("in", [b"0"]), [], key=value_of))
    finally:
        TIMELINE.reset(token)
    assert "killed before OffsetCommit" in str(error)


def test_a_message_about_values_without_events_shows_the_faults() -> None:
    timeline = story()
    for number in range(100):
        timeline.add(TimelineEvent(50 + number, "b", "request", "Heartbeat 1"))

    error = failure_of(
        lambda: exactly_once([("ann", 1)], [], key=lambda one: one, timeline=timeline)
    )

    assert "Events around the faults" in str(error)
    assert "killed before OffsetCommit #1 was sent" in str(error)


def test_a_message_about_rows_of_a_store_shows_their_writes() -> None:
    timeline = story()
    timeline.add(TimelineEvent(6.0, "b", "store", "commit: put 'row-1'", {"key": "'row-1'"}))

    error = failure_of(
        lambda: exactly_once(["row-1"], ["row-1"] * 2, key=lambda one: one, timeline=timeline)
    )

    assert "→     6.000  b  store" in str(error)


def test_a_message_with_very_many_errors_stays_short_and_counts_the_rest() -> None:
    inputs = written("in", [b"%d" % number for number in range(1_000)])
    outputs = [one for one in inputs for _ in range(7)]

    error = failure_of(lambda: exactly_once(inputs, outputs, key=value_of, timeline=story()))

    assert len(error.keys) == 1_000
    assert "1000 of 1000 inputs have more than one output" in str(error)
    assert "… and 4 more" in str(error)
    assert "… and 998 more" in str(error)


def test_a_message_shows_hostile_text_escaped() -> None:
    outputs = [WrittenRecord("out\x1b[2J", 0, 0, b"\n\x1b", b"\x00" * 500)]

    text = str(failure_of(lambda: exactly_once([], outputs, key=value_of)))

    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 250
