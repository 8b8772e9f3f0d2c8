"""Short forms of copied and local segments for tests."""

from uuid import UUID

from ottla.model.ids import Epoch, NodeId, Offset
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier.copy_plan import LocalSegment
from ottla.storage.tier.lineage import Lineage
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import (
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentState,
    RemoteSegmentUpdate,
)

TOPIC_ID = UUID(int=7777)
STARTED, FINISHED, DELETING, DELETED = RemoteSegmentState


def segment_id(number: int) -> RemoteSegmentId:
    return RemoteSegmentId(TOPIC_ID, 3, UUID(int=number))


def entries(epochs: dict[int, int]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(Epoch(epoch), Offset(start)) for epoch, start in epochs.items())


def remote(
    number: int,
    start: int,
    end: int,
    epochs: dict[int, int] | None = None,
    *,
    size: int = 10,
    max_timestamp_ms: int = 1_000,
    event_timestamp_ms: int = 1_000,
    has_empty_transaction_index: bool = True,
) -> RemoteSegment:
    return RemoteSegment(
        id=segment_id(number),
        start_offset=Offset(start),
        end_offset=Offset(end),
        broker_id=NodeId(1),
        max_timestamp_ms=max_timestamp_ms,
        event_timestamp_ms=event_timestamp_ms,
        size_bytes=size,
        leader_epochs=entries(epochs or {0: start}),
        has_empty_transaction_index=has_empty_transaction_index,
    )


def update(
    number: int, state: RemoteSegmentState, *, custom_metadata: bytes | None = None
) -> RemoteSegmentUpdate:
    return RemoteSegmentUpdate(segment_id(number), 2_000, custom_metadata, state, NodeId(2))


def add(
    metadata: RemoteMetadata, segment: RemoteSegment, state: RemoteSegmentState = FINISHED
) -> None:
    """Apply the records that bring a new segment to a state."""
    assert metadata.apply(segment) is None
    number = segment.id.segment_id.int
    path = {STARTED: (), FINISHED: (FINISHED,), DELETING: (FINISHED, DELETING)}[state]
    for each in path:
        change = update(number, each)._replace(event_timestamp_ms=segment.event_timestamp_ms)
        assert metadata.apply(change) is None


def metadata_of(*segments: RemoteSegment) -> RemoteMetadata:
    metadata = RemoteMetadata()
    for segment in segments:
        add(metadata, segment)
    return metadata


def number_of(segment: RemoteSegment | None) -> int | None:
    return None if segment is None else segment.id.segment_id.int


def lineage(epochs: dict[int, int], end: int, start: int = 0) -> Lineage:
    return Lineage(entries(epochs), start_offset=Offset(start), end_offset=Offset(end))


def local(base: int, end: int, *, size: int = 10, max_timestamp_ms: int = 1_000) -> LocalSegment:
    return LocalSegment(Offset(base), Offset(end), size, max_timestamp_ms)
