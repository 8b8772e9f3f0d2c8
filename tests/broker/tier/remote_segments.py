"""Copied segments for tests of a broker's tiered storage."""

from uuid import UUID

from ottla.model.ids import Epoch, NodeId, Offset, TopicIdPartition
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier.remote_segment import (
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentState,
    RemoteSegmentUpdate,
)

TOPIC_ID = UUID(int=0xABCD)
PARTITION = TopicIdPartition(TOPIC_ID, 0)


def segment(
    number: int, start: int, end: int, *, partition: TopicIdPartition = PARTITION, epoch: int = 0
) -> RemoteSegment:
    """Return a copy, in the state COPY_STARTED, of records with one leader epoch."""
    return RemoteSegment(
        id=RemoteSegmentId(*partition, UUID(int=number)),
        start_offset=Offset(start),
        end_offset=Offset(end),
        broker_id=NodeId(1),
        max_timestamp_ms=1_000,
        event_timestamp_ms=1_000,
        size_bytes=100,
        leader_epochs=(EpochEntry(Epoch(epoch), Offset(start)),),
        has_empty_transaction_index=True,
    )


def update(of: RemoteSegment, state: RemoteSegmentState) -> RemoteSegmentUpdate:
    """Return a change of a copy's state."""
    return RemoteSegmentUpdate(of.id, 2_000, None, state, NodeId(1))
