"""Client operations of a run are passed unchanged to the checkers of real clusters, and judged."""

import pytest

from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.jepsen.history import EventKind
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.client_events import FINAL, ClientEvents
from ottla.jepsen.world.whole.history import ClientHistory
from ottla.model.ids import NO_EPOCH, Offset, TopicPartition
from ottla.wire.batch import TimestampType

AT = TopicPartition("orders", 0)


def record(number: int) -> ConsumerRecord:
    return ConsumerRecord(
        topic="orders",
        partition=0,
        offset=Offset(number),
        timestamp_ms=0,
        key=None,
        value=b"producer.1/%d" % number,
        headers=(),
        leader_epoch=NO_EPOCH,
        timestamp_type=TimestampType.CREATE_TIME,
    )


def begun() -> ClientHistory:
    """Return a history of three records that were sent and acknowledged, and never read."""
    history = ClientHistory(Trace())
    for number in range(3):
        value = b"producer.1/%d" % number
        history.on_send(AT, value)
        history.on_acknowledged(AT, value, number)
    return history


def found(history: ClientHistory) -> str | None:
    violation = history.events.violation()
    return None if violation is None else violation.invariant


def reads(events: ClientEvents, process: int, *numbers: int, is_final: bool = False) -> None:
    poll = events.begins_poll(process, *([FINAL] if is_final else []))
    events.ends_poll(poll, [record(number) for number in numbers])


def test_what_was_read_to_the_end_breaks_nothing() -> None:
    history = begun()
    reads(history.events, history.events.process(), 0, 1, 2)
    assert found(history) is None
    sends = history.events.history().operations("send")
    assert [operation.kind for operation in sends] == [EventKind.OK] * 3


def test_a_reader_that_passes_a_record_by_is_found() -> None:
    history = begun()
    events = history.events
    reads(events, events.process(), 0, 1, 2)
    reader = events.process()
    reads(events, reader, 0)
    reads(events, reader, 2)
    assert found(history) == "NoPollSkip"


def test_a_record_that_final_reads_do_not_find_is_found() -> None:
    history = begun()
    events = history.events
    events.final_reads_begin()
    reads(events, events.process(), 0, 1, is_final=True)
    assert found(history) == "NoUnseen"


def test_what_comes_after_the_end_that_final_reads_see_is_not_their_matter() -> None:
    history = begun()
    events = history.events
    history.on_send(AT, b"producer.1/3")
    late = events.begins_poll(events.process())
    events.final_reads_begin()
    history.on_acknowledged(AT, b"producer.1/3", 3)
    events.ends_poll(late, [record(3)])
    reads(events, events.process(), 0, 1, 2, is_final=True)
    assert found(history) is None


def test_a_commit_that_no_fetch_fits_is_found() -> None:
    events = ClientEvents(lambda: 0)
    for offset in (5, 7):
        commit = events.begins("commit", {"group": "g", "keys": {"orders-0": offset}})
        events.ends(commit)
    fetch = events.begins("fetch", {"group": "g"})
    events.ends(fetch, {"group": "g", "keys": {"orders-0": 5}})
    violation = events.violation()
    assert isinstance(violation, Violation)
    assert violation.invariant == "Linearizable"


@pytest.mark.parametrize("is_acknowledged", [True, False])
def test_a_record_out_of_the_order_of_time_is_found_acknowledged_or_not(
    is_acknowledged: bool,
) -> None:
    history = ClientHistory(Trace())
    history.on_send(AT, b"producer.1/1")
    history.on_acknowledged(AT, b"producer.1/1", 1)
    history.on_send(AT, b"producer.1/0")
    if is_acknowledged:
        history.on_acknowledged(AT, b"producer.1/0", 0)
    reads(history.events, history.events.process(), 0, 1)
    assert found(history) == "RealTimeOrder"
