"""A segment of a partition that was, or is being, copied to an object store. Pure.

Kafka's name for such a segment is RemoteLogSegmentMetadata. A segment is immutable except for its
state, the custom metadata of the store, and the broker and time of the last change.
"""

from dataclasses import replace
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.values import frozen
from ottla.storage.segments.epoch_cache import EpochEntry


class RemoteSegmentId(NamedTuple):
    """Id of a copied segment, which is new for each attempt to copy a local segment."""

    topic_id: UUID
    partition: int
    segment_id: UUID


class RemoteSegmentState(IntEnum):
    """State of a copied segment, with Kafka's numbers."""

    COPY_STARTED = 0
    """The copy was started: objects of the segment may exist, but are not read."""
    COPY_FINISHED = 1
    """The copy is complete: all objects of the segment exist and may be read."""
    DELETE_STARTED = 2
    """The deletion was started: objects of the segment may be missing, and are not read."""
    DELETE_FINISHED = 3
    """The deletion is complete: no object of the segment is left. The segment is removed from the
    metadata."""


NEXT_STATES: dict[RemoteSegmentState, frozenset[RemoteSegmentState]] = {
    RemoteSegmentState.COPY_STARTED: frozenset(
        {RemoteSegmentState.COPY_FINISHED, RemoteSegmentState.DELETE_STARTED}
    ),
    RemoteSegmentState.COPY_FINISHED: frozenset({RemoteSegmentState.DELETE_STARTED}),
    RemoteSegmentState.DELETE_STARTED: frozenset({RemoteSegmentState.DELETE_FINISHED}),
    RemoteSegmentState.DELETE_FINISHED: frozenset(),
}
"""Permitted next states of a copied segment, by its current state."""


@frozen(kw_only=True)
class RemoteSegment:
    """Metadata of one copied segment: its identity, state, offsets, leader epochs, times and
    sizes."""

    id: RemoteSegmentId
    start_offset: Offset
    """Offset of the segment's first record."""
    end_offset: Offset
    """Offset of the segment's last record, inclusive."""
    broker_id: NodeId
    """Id of the broker that wrote the segment's current state."""
    max_timestamp_ms: int
    """Largest timestamp of the segment's records, in ms since 1970, or -1 if they have none."""
    event_timestamp_ms: int
    """Time at which the segment's current state was written, in ms since 1970."""
    size_bytes: int
    """Size in bytes of the segment's `.log` file."""
    leader_epochs: tuple[EpochEntry, ...]
    """Leader epochs of the segment's records, each with its first offset in the segment. If two
    epochs have the same first offset, the earlier one has no records."""
    custom_metadata: bytes | None = None
    """Bytes that the object store needs to find the segment's objects, or None if the store needs
    no such bytes."""
    state: RemoteSegmentState = RemoteSegmentState.COPY_STARTED
    has_empty_transaction_index: bool = False
    """True if the segment has no transaction index, because no transaction was aborted in the
    segment."""

    def start_offset_of(self, epoch: Epoch) -> Offset:
        """Return the offset at which a leader epoch begins in the segment. Raises KeyError if the
        segment has no such epoch."""
        for entry in self.leader_epochs:
            if entry.epoch == epoch:
                return entry.start_offset
        raise KeyError(epoch)

    def end_offset_of(self, epoch: Epoch) -> Offset:
        """Return the offset of the segment's last record with this leader epoch. If the epoch has
        no records, the result is below the first offset of the epoch. Raises KeyError if the
        segment has no such epoch."""
        for index, entry in enumerate(self.leader_epochs):
            if entry.epoch == epoch:
                if index + 1 == len(self.leader_epochs):
                    return self.end_offset
                return Offset(self.leader_epochs[index + 1].start_offset - 1)
        raise KeyError(epoch)


class RemoteSegmentUpdate(NamedTuple):
    """A change of a copied segment's state, as one record of the metadata topic. Kafka's name is
    RemoteLogSegmentMetadataUpdate."""

    id: RemoteSegmentId
    event_timestamp_ms: int
    custom_metadata: bytes | None
    """New bytes that the object store needs to find the segment's objects. None leaves the known
    bytes unchanged."""
    state: RemoteSegmentState
    broker_id: NodeId

    def applied_to(self, segment: RemoteSegment) -> RemoteSegment:
        """Return a copy of the segment with this change."""
        custom_metadata = self.custom_metadata
        return replace(
            segment,
            broker_id=self.broker_id,
            event_timestamp_ms=self.event_timestamp_ms,
            custom_metadata=segment.custom_metadata if custom_metadata is None else custom_metadata,
            state=self.state,
        )


class RemoteSegmentRemoval(NamedTuple):
    """Removal of a copied segment from the metadata topic. It is written as tombstones, after all
    objects of the segment were deleted."""

    id: RemoteSegmentId

    @property
    def state(self) -> RemoteSegmentState:
        """State of a removed segment, which is always DELETE_FINISHED."""
        return RemoteSegmentState.DELETE_FINISHED


RemoteRecord = RemoteSegment | RemoteSegmentUpdate | RemoteSegmentRemoval
"""Content of a record of the metadata topic: a new copied segment, a change of its state, or its
removal."""


def fault_of(segment: RemoteSegment) -> str | None:
    """Return the reason why the metadata of a copied segment cannot be right, or None if the
    metadata are plausible."""
    epochs = segment.leader_epochs
    if not 0 <= segment.start_offset <= segment.end_offset:
        return f"its offsets are {segment.start_offset} to {segment.end_offset}"
    if segment.size_bytes < 0:
        return f"its size is {segment.size_bytes} bytes"
    if not epochs:
        return "it has no leader epochs"
    if not segment.start_offset <= epochs[0].start_offset:
        return f"its first leader epoch begins at {epochs[0].start_offset}, before the segment"
    if epochs[-1].start_offset > segment.end_offset:
        return f"its last leader epoch begins at {epochs[-1].start_offset}, after the segment"
    if epochs[0].epoch < 0:
        return f"its first leader epoch is {epochs[0].epoch}"
    for older, newer in pairwise(epochs):
        if newer.epoch <= older.epoch or newer.start_offset < older.start_offset:
            return f"leader epoch {newer.epoch} does not follow {older.epoch}"
    return None
