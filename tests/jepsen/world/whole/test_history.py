"""Clients' observations are checked against Kafka's guarantees: each violation has its name."""

from collections.abc import Callable

import pytest

from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.whole.history import ClientHistory
from ottla.model.ids import TopicPartition

AT = TopicPartition("orders", 0)
GROUP = "readers"


def history_of() -> ClientHistory:
    """Return a history of three records that were sent and acknowledged, and nothing wrong."""
    history = ClientHistory(Trace())
    for number in range(3):
        value = b"producer.1/%d" % number
        history.on_send(AT, value)
        history.on_acknowledged(AT, value, number)
        history.on_read(AT, value, number)
    return history


def lost(history: ClientHistory) -> None:
    history.on_final_read(AT, {0: b"producer.1/0", 1: b"producer.1/1"}, end=3)


def twice(history: ClientHistory) -> None:
    history.on_read(AT, b"producer.1/1", 7)


def from_nowhere(history: ClientHistory) -> None:
    history.on_read(AT, b"stranger/0", 7)


def changed(history: ClientHistory) -> None:
    history.on_send(AT, b"other.1/0")
    history.on_read(AT, b"other.1/0", 1)


def vanished(history: ClientHistory) -> None:
    history.on_send(AT, b"other.1/0")
    history.on_read(AT, b"other.1/0", 3)
    history.on_final_read(AT, {n: b"producer.1/%d" % n for n in range(3)}, end=4)


def too_early(history: ClientHistory) -> None:
    history.on_send(AT, b"other.1/0")
    history.on_acknowledged(AT, b"other.1/0", 2)


def out_of_order(history: ClientHistory) -> None:
    history.on_send(AT, b"other.1/1")
    history.on_send(AT, b"other.1/0")
    history.on_final_read(
        AT,
        {n: b"producer.1/%d" % n for n in range(3)} | {3: b"other.1/1", 4: b"other.1/0"},
        end=5,
    )


def invisible(history: ClientHistory) -> None:
    history.on_end_offset(AT, 2, floor=2)


def went_back(history: ClientHistory) -> None:
    history.on_committed(GROUP, {AT: 2})
    floor = history.committed_floor(GROUP, AT)
    history.on_committed_read(GROUP, AT, 1, floor=floor)


def unread(history: ClientHistory) -> None:
    history.on_processed(GROUP, AT, 0)
    history.on_committed(GROUP, {AT: 2})
    history.check_group(GROUP, AT)


@pytest.mark.parametrize(
    ("break_it", "invariant"),
    [
        (lost, "NoAcknowledgedRecordLost"),
        (twice, "NoRecordTwice"),
        (from_nowhere, "NothingFromNowhere"),
        (changed, "ConsistentRead"),
        (vanished, "ConsistentRead"),
        (too_early, "RealTimeOrder"),
        (out_of_order, "ProducerOrder"),
        (invisible, "AcknowledgedIsVisible"),
        (went_back, "CommittedOffsetsNeverGoBack"),
        (unread, "NothingCommittedUnread"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_broken_promise_is_found(
    break_it: Callable[[ClientHistory], None], invariant: str
) -> None:
    history = history_of()
    assert history.broken is None
    break_it(history)
    assert history.broken is not None
    assert history.broken.invariant == invariant


def test_what_was_kept_breaks_nothing() -> None:
    history = history_of()
    for number in range(3):
        history.on_processed(GROUP, AT, number)
    history.on_committed(GROUP, {AT: 3})
    history.on_committed_read(GROUP, AT, 3, floor=history.committed_floor(GROUP, AT))
    history.check_group(GROUP, AT)
    history.on_final_read(AT, {n: b"producer.1/%d" % n for n in range(3)}, end=4)
    assert history.broken is None


def test_a_record_that_was_given_up_may_be_there_or_not() -> None:
    history = history_of()
    history.on_send(AT, b"producer.1/3")
    kept = {n: b"producer.1/%d" % n for n in range(3)}
    history.on_final_read(AT, kept, end=3)
    history.on_final_read(AT, kept | {3: b"producer.1/3"}, end=4)
    assert history.broken is None


@pytest.mark.parametrize(
    ("left", "broken"),
    [
        ((0, 1, 2, 3), None),
        ((2, 3), None),
        ((1, 2, 3), None),
        ((0, 1, 2), "NoAcknowledgedRecordLost"),
        ((1, 3), "NoAcknowledgedRecordLost"),
        ((), "NoAcknowledgedRecordLost"),
    ],
)
def test_of_a_compacted_log_what_was_superseded_may_be_gone(
    left: tuple[int, ...], broken: str | None
) -> None:
    history = ClientHistory(Trace(), record_key_count=2)
    for number in range(4):
        history.on_send(AT, b"producer.1/%d" % number)
        history.on_acknowledged(AT, b"producer.1/%d" % number, number)
        if number in left:
            history.on_processed(GROUP, AT, number)
    history.on_committed(GROUP, {AT: 4})

    history.on_final_read(AT, {number: b"producer.1/%d" % number for number in left}, end=4)
    if broken is None:
        history.check_group(GROUP, AT)

    assert (None if history.broken is None else history.broken.invariant) == broken


def test_a_group_may_not_pass_over_the_last_value_of_a_key() -> None:
    history = ClientHistory(Trace(), record_key_count=2)
    for number in range(4):
        history.on_send(AT, b"producer.1/%d" % number)
        history.on_acknowledged(AT, b"producer.1/%d" % number, number)
    history.on_processed(GROUP, AT, 3)
    history.on_committed(GROUP, {AT: 4})

    history.check_group(GROUP, AT)

    assert history.broken is not None
    assert history.broken.invariant == "NothingCommittedUnread"
