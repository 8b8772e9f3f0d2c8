"""Metadata of tiered partitions, as a broker loads it from the metadata topic."""

from ottla.broker.tier.metadata_topic import metadata_partition_of
from ottla.broker.tier.remote_states import RemoteStates
from ottla.model.ids import Offset, TopicIdPartition
from ottla.storage.tier.remote_records import encode_record
from ottla.storage.tier.remote_segment import RemoteRecord, RemoteSegmentState
from tests.broker.tier.remote_segments import PARTITION, TOPIC_ID, segment, update

FINISHED = RemoteSegmentState.COPY_FINISHED
OTHER = TopicIdPartition(TOPIC_ID, 1)


class MetadataLog:
    """The only partition of a metadata topic, which a test writes and replays."""

    def __init__(self) -> None:
        self.entries: list[tuple[bytes, bytes | None]] = []

    def write(self, record: RemoteRecord) -> None:
        self.entries += encode_record("orders", record)

    def replay(self, states: RemoteStates, start: int = 0) -> None:
        for offset, (key, value) in enumerate(self.entries[start:], start):
            states.on_record(0, Offset(offset), key, value)
        states.on_position(0, Offset(len(self.entries)))


def begin(states: RemoteStates, end_offset: int) -> None:
    states.begin(0, Offset(end_offset), states.unknown_ends(0))


def test_a_partition_is_ready_when_everything_before_its_assignment_is_applied() -> None:
    log, states = MetadataLog(), RemoteStates(1)
    first = segment(1, 0, 9)
    log.write(first)
    log.write(update(first, FINISHED))
    assert states.assign(PARTITION)
    assert states.new_stores() == [0]
    begin(states, 2)
    assert states.metadata_of(PARTITION) is None
    states.on_record(0, Offset(0), *log.entries[0])
    assert states.metadata_of(PARTITION) is None
    log.replay(states, 1)
    metadata = states.metadata_of(PARTITION)
    assert metadata is not None
    assert [each.state for each in metadata.all_segments()] == [FINISHED]


def test_an_empty_metadata_topic_makes_a_partition_ready_at_once() -> None:
    states = RemoteStates(1)
    states.assign(PARTITION)
    begin(states, 0)
    assert states.metadata_of(PARTITION) is not None


def test_the_end_of_a_compacted_log_is_reached_by_position() -> None:
    states = RemoteStates(1)
    states.assign(PARTITION)
    begin(states, 7)
    states.on_position(0, Offset(7))
    assert states.metadata_of(PARTITION) is not None


def test_a_partition_that_is_added_later_gets_the_records_from_the_start() -> None:
    log, states = MetadataLog(), RemoteStates(1)
    mine, theirs = segment(1, 0, 9), segment(2, 0, 5, partition=OTHER)
    states.assign(PARTITION)
    begin(states, 0)
    for record in (mine, theirs, update(mine, FINISHED), update(theirs, FINISHED)):
        log.write(record)
    log.replay(states)
    assert states.assign(OTHER)
    assert states.metadata_of(OTHER) is None
    begin(states, 4)
    log.replay(states)
    metadata = states.metadata_of(OTHER)
    assert metadata is not None
    assert [each.id for each in metadata.all_segments()] == [theirs.id]
    # What was applied before was not applied again, and not refused as a repetition.
    assert states.refused_count == 0


def test_records_before_the_end_is_known_are_not_applied_twice() -> None:
    log, states = MetadataLog(), RemoteStates(1)
    states.assign(PARTITION)
    begin(states, 0)
    log.write(segment(2, 0, 5, partition=OTHER))
    states.assign(OTHER)
    log.replay(states)
    assert states.metadata_of(OTHER) is None
    begin(states, 1)
    assert states.metadata_of(OTHER) is None
    log.replay(states)
    metadata = states.metadata_of(OTHER)
    assert metadata is not None
    assert len(list(metadata.all_segments())) == 1
    assert states.refused_count == 0


def test_corrupt_and_contradictory_records_change_nothing() -> None:
    log, states = MetadataLog(), RemoteStates(1)
    states.assign(PARTITION)
    begin(states, 0)
    log.write(update(segment(1, 0, 9), FINISHED))
    log.entries.append((b"\0\0short", b"x"))
    log.replay(states)
    metadata = states.metadata_of(PARTITION)
    assert metadata is not None
    assert list(metadata.all_segments()) == []
    assert (states.refused_count, states.corrupt_count) == (1, 1)


def test_a_removed_partition_leaves_its_store() -> None:
    states = RemoteStates(1)
    states.assign(PARTITION)
    assert not states.assign(PARTITION)
    assert states.stores == {0}
    states.unassign(PARTITION)
    assert states.stores == frozenset()
    assert states.metadata_of(PARTITION) is None


def test_a_new_metadata_topic_is_loaded_from_its_start() -> None:
    states = RemoteStates(1)
    states.assign(PARTITION)
    begin(states, 0)
    states.reset(50)
    assert states.metadata_of(PARTITION) is None
    assert states.stores == {metadata_partition_of(PARTITION, 50)}
    assert states.new_stores() == [metadata_partition_of(PARTITION, 50)]
