"""Batches of metadata records as steps of an image."""

from uuid import UUID

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, PartitionState
from ottla.metadata.records import (
    config_record,
    partition_change_record,
    partition_record,
    topic_record,
)
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.node.quorum.record_batches import (
    SLICE_RECORDS,
    batch_of,
    replay,
    replay_in_slices,
    snapshot_data_batches,
)

TOPIC = UUID(int=7)
COUNT = 3 * SLICE_RECORDS


def batch() -> bytes:
    """Return one batch that makes a topic and then changes each of its partitions."""
    states = [
        PartitionState(
            replicas=(NodeId(1), NodeId(2)),
            directories=(UUID(int=1), UUID(int=2)),
            isr=(NodeId(1), NodeId(2)),
            leader=NodeId(1),
        )
        for _ in range(COUNT)
    ]
    records = [
        topic_record("otters", TOPIC),
        *(partition_record(TOPIC, at, state) for at, state in enumerate(states)),
        *(partition_change_record(TOPIC, at, isr=(NodeId(1),)) for at in range(COUNT)),
    ]
    return batch_of(records, timestamp_ms=0)


def test_a_large_batch_is_folded_in_slices_to_the_same_image() -> None:
    whole, sliced = MetadataDelta(EMPTY), MetadataDelta(EMPTY)
    data = batch()
    last = replay(whole, data)
    found = list(replay_in_slices(sliced, data))
    assert len(found) >= 2 * COUNT // SLICE_RECORDS
    assert set(found) == {last}
    assert sliced.image == whole.image
    assert len(sliced.image.topics[TOPIC].partitions) == COUNT
    assert sliced.changed_partitions == whole.changed_partitions
    assert len(sliced.changed_partitions) == COUNT


def test_folding_many_partitions_at_once_is_folding_each_alone() -> None:
    together, apart = MetadataDelta(EMPTY), MetadataDelta(EMPTY)
    state = PartitionState(
        replicas=(NodeId(1),), directories=(UUID(int=1),), isr=(NodeId(1),), leader=NodeId(1)
    )
    moved = PartitionState(
        replicas=(NodeId(2),), directories=(UUID(int=2),), isr=(NodeId(2),), leader=NodeId(2)
    )
    records = [
        topic_record("a", TOPIC),
        topic_record("b", UUID(int=8)),
        partition_record(TOPIC, 0, state),
        partition_record(TOPIC, 1, state),
        partition_record(UUID(int=8), 0, state),
        partition_record(TOPIC, 1, moved),
        partition_change_record(TOPIC, 0, isr=(NodeId(1),)),
    ]
    together.replay_all(records)
    for record in records:
        apart.replay(record)
    assert together.image == apart.image
    assert together.changed_partitions == apart.changed_partitions


def test_a_snapshot_is_built_in_slices_between_which_other_tasks_run() -> None:
    """One batch of 1 MiB held the event loop for 60 ms."""
    names = [f"key-{number}" for number in range(5 * SLICE_RECORDS + 1)]
    records = [config_record(2, "otters", name, "x" * 100) for name in names]

    pieces = list(
        snapshot_data_batches(records, timestamp_ms=1, epoch=Epoch(1), base_offset=Offset(4))
    )

    assert pieces.count(b"") == 5
    delta = MetadataDelta(EMPTY)
    replay(delta, b"".join(pieces))
    assert [key for key, _ in delta.image.config(2, "otters").items()] == sorted(names)
