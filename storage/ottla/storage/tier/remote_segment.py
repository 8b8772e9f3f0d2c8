"""A segment of a partition that was, or is being, copied to an object store. Pure.

Kafka's name for it is RemoteLogSegmentMetadata. A segment is immutable except for its state, the
custom metadata of the store, and the broker and time of the last change.
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
    """Id of a copied segment. Each attempt to copy a local segment has an id of its own."""

    topic_id: UUID
    partition: int
    segment_id: UUID


class RemoteSegmentState(IntEnum):
    """State of a copied segment. The values are Kafka's."""

    COPY_STARTED = 0
    """State: objects may exist, but nothing reads them."""
    COPY_FINISHED = 1
    """State: all objects exist, and the segment is readable."""
    DELETE_STARTED = 2
    """State: objects may be missing, and nothing reads them."""
    DELETE_FINISHED = 3
    """State: no objects are left. A segment in this state is dropped from the metadata."""


NEXT_STATES: dict[RemoteSegmentState, frozenset[RemoteSegmentState]] = {
    RemoteSegmentState.COPY_STARTED: frozenset(
        {RemoteSegmentState.COPY_FINISHED, RemoteSegmentState.DELETE_STARTED}
    ),
    RemoteSegmentState.COPY_FINISHED: frozenset({RemoteSegmentState.DELETE_STARTED}),
    RemoteSegmentState.DELETE_STARTED: frozenset({RemoteSegmentState.DELETE_FINISHED}),
    RemoteSegmentState.DELETE_FINISHED: frozenset(),
}
"""Legal transitions of a copied segment, by its current state."""


@frozen(kw_only=True)
class RemoteSegment:
    """A copied segment, with everything that look-ups and retention need."""

    id: RemoteSegmentId
    start_offset: Offset
    """Offset of the segment's first record."""
    end_offset: Offset
    """Offset of the segment's last record, inclusive."""
    broker_id: NodeId
    """The broker that wrote the current state."""
    max_timestamp_ms: int
    """Largest timestamp of the segment's records, or -1 if they have none."""
    event_timestamp_ms: int
    """Time at which the current state was written."""
    size_bytes: int
    """Size in bytes of the segment's `.log` file."""
    leader_epochs: tuple[EpochEntry, ...]
    """Leader epochs of the segment's records, with the offset at which each begins in the segment.
    An epoch that begins where the next one does has no records."""
    custom_metadata: bytes | None = None
    """Bytes that the store needs to find the objects, or None if it needs none."""
    state: RemoteSegmentState = RemoteSegmentState.COPY_STARTED
    has_empty_transaction_index: bool = False
    """True if no transaction was aborted in the segment, so that it has no transaction index."""

    def start_offset_of(self, epoch: Epoch) -> Offset:
        """Return the offset at which a leader epoch begins in the segment. Raises KeyError if the
        segment does not list the epoch."""
        for entry in self.leader_epochs:
            if entry.epoch == epoch:
                return entry.start_offset
        raise KeyError(epoch)

    def end_offset_of(self, epoch: Epoch) -> Offset:
        """Return the offset, inclusive, of the segment's last record with this leader epoch. It is
        below the epoch's start if the epoch has no records. Raises KeyError if the segment does not
        list the epoch."""
        for index, entry in enumerate(self.leader_epochs):
            if entry.epoch == epoch:
                if index + 1 == len(self.leader_epochs):
                    return self.end_offset
                return Offset(self.leader_epochs[index + 1].start_offset - 1)
        raise KeyError(epoch)


class RemoteSegmentUpdate(NamedTuple):
    """A change of a copied segment's state. Kafka's name is RemoteLogSegmentMetadataUpdate."""

    id: RemoteSegmentId
    event_timestamp_ms: int
    custom_metadata: bytes | None
    """New bytes of the store for the segment. None keeps the bytes that are known."""
    state: RemoteSegmentState
    broker_id: NodeId

    def applied_to(self, segment: RemoteSegment) -> RemoteSegment:
        """Return the segment after this change."""
        custom_metadata = self.custom_metadata
        return replace(
            segment,
            broker_id=self.broker_id,
            event_timestamp_ms=self.event_timestamp_ms,
            custom_metadata=segment.custom_metadata if custom_metadata is None else custom_metadata,
            state=self.state,
        )


class RemoteSegmentRemoval(NamedTuple):
    """Removal of a copied segment from the metadata: the tombstone of its first record, which is
    written after all its objects were deleted."""

    id: RemoteSegmentId

    @property
    def state(self) -> RemoteSegmentState:
        """The state of a removed segment."""
        return RemoteSegmentState.DELETE_FINISHED


RemoteRecord = RemoteSegment | RemoteSegmentUpdate | RemoteSegmentRemoval
"""A record about a copied segment: the whole segment, a change of its state, or its removal."""


def fault_of(segment: RemoteSegment) -> str | None:
    """Return the reason why a segment that was read from records cannot be true, or None if it is
    plausible."""
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
