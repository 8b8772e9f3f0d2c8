"""The records of one decision are in the log as a whole, or not at all."""

from ottla.broker.coordinators.effects import CoordinatorRecord, Outbox
from ottla.broker.coordinators.record_batches import RECORD_OVERHEAD_BYTES, batches_of
from ottla.wire.batch import batches
from ottla.wire.records import scan

VALUE_BYTES = 100
FIVE_BYTES = 5 * (2 + VALUE_BYTES + RECORD_OVERHEAD_BYTES)
"""Size of five records with their overhead."""


def event(*names: str) -> list[CoordinatorRecord]:
    return [CoordinatorRecord(name.encode(), bytes(VALUE_BYTES)) for name in names]


def keys_of(data: bytes) -> list[list[str]]:
    """Return the keys of every batch."""
    return [
        [bytes(record.key or b"").decode() for record in scan(data, at, header)]
        for at, header in batches(data)
    ]


def test_events_share_a_batch_while_there_is_room() -> None:
    data = batches_of([event("a1", "a2"), event("b1", "b2")], 0, FIVE_BYTES)

    assert keys_of(data) == [["a1", "a2", "b1", "b2"]]


def test_an_event_that_does_not_fit_any_more_begins_a_batch_and_is_not_parted() -> None:
    writes = [event("a1", "a2", "a3"), event("b1", "b2", "b3", "b4"), event("c1")]

    data = batches_of(writes, 0, FIVE_BYTES)

    assert keys_of(data) == [["a1", "a2", "a3"], ["b1", "b2", "b3", "b4", "c1"]]


def test_only_an_event_that_no_batch_could_hold_is_parted() -> None:
    names = [f"a{at}" for at in range(9)]

    data = batches_of([event(*names), event("b1")], 0, FIVE_BYTES)

    parts = keys_of(data)
    assert [name for part in parts for name in part] == [*names, "b1"]
    assert len(parts) > 1
    assert all(header.size_bytes <= FIVE_BYTES for _, header in batches(data))


def test_an_outbox_keeps_apart_what_two_events_wrote() -> None:
    outbox = Outbox()
    first, second, third = event("a1", "a2", "b1")

    outbox.write(first)
    outbox.write(second)
    outbox.end_event()
    outbox.end_event()
    outbox.write(third)
    effects = outbox.take()

    assert effects.writes == [[first, second], [third]]
    assert [one for write in effects.writes for one in write] == [first, second, third]
    assert outbox.take().writes == []
