"""Plan of the copied segments that a leader deletes from the object store, in order. Pure.

The plan is a list of steps, and the driver stops at the first step that fails. The log start is
raised before any segment is deleted. Therefore no record at or above the log start of any later
leader is in a segment that is being deleted.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ottla.model.ids import Epoch, Offset
from ottla.model.values import frozen
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier.copy_plan import LocalSegment, highest_remote
from ottla.storage.tier.lineage import Lineage
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import RemoteSegment, RemoteSegmentId, RemoteSegmentState

ABANDONED_COPY_MS = 24 * 60 * 60 * 1000
"""Age in ms at which an unfinished copy of a segment, made by a former leader, counts as abandoned
and is deleted. With a shorter time, a copy on a slow line is deleted while it is written, and its
last objects are left in the store. With a longer time, the objects of failed copies cost storage
for longer."""


class MoveLogStart(NamedTuple):
    """Step of the plan: raise the log start offset to `offset` durably, before the next step."""

    offset: Offset


class DeleteSegment(NamedTuple):
    """Step of the plan: delete a copied segment. The state DELETE_STARTED is written first if the
    segment does not have it yet. Then the segment's objects are deleted, and the segment is removed
    from the metadata."""

    segment: RemoteSegment
    reason: str
    """Reason of the deletion, as text for a log message."""


ExpiryStep = MoveLogStart | DeleteSegment


@frozen(kw_only=True)
class ExpiryInput:
    """State of a leader's log from which the deletion of copied segments is planned. The metadata
    must contain all records that existed when the leader was elected."""

    metadata: RemoteMetadata
    epochs: Sequence[EpochEntry]
    """Leader epochs of the log's epoch cache. They reach back to the log start offset."""
    local_segments: Sequence[LocalSegment]
    log_start_offset: Offset
    high_watermark: Offset
    end_offset: Offset
    retention_ms: int
    """Age in ms after which segments are deleted, or -1 for unlimited retention."""
    retention_bytes: int
    """Maximum size in bytes of the log, local and copied records together, or -1 if there is no
    limit."""
    now_ms: int
    being_copied: Collection[RemoteSegmentId] = ()
    """Ids of the segments that this leader is copying now, which are not deleted."""
    abandoned_copy_ms: int = ABANDONED_COPY_MS

    @property
    def lineage(self) -> Lineage:
        """Leader epochs of the log's records, for comparison with copied segments."""
        return Lineage(self.epochs, start_offset=self.log_start_offset, end_offset=self.end_offset)


def plan_expiry(log: ExpiryInput) -> list[ExpiryStep]:
    """Return the steps that delete copied segments of a leader's log, in the order in which they
    must be performed:

    - Deletions that began earlier are repeated.
    - Finished segments of the log are deleted, in the order of their offsets, while they are below
      the log start offset, older than the retention time, or in excess of the maximum size. This
      ends at the first segment that is retained, or that contains an uncommitted record.
    - Abandoned copies are deleted, and segments whose leader epochs are all older than those of the
      log.
    """
    lineage = log.lineage
    segments = [each for each in log.metadata.all_segments() if each.id not in log.being_copied]
    repeated = [
        DeleteSegment(segment, "its deletion was interrupted")
        for segment in segments
        if segment.state is RemoteSegmentState.DELETE_STARTED
    ]
    expired, start_offset = _expired(log, lineage)
    leftover = [
        DeleteSegment(segment, reason)
        for segment in segments
        if segment.state is not RemoteSegmentState.DELETE_STARTED
        and segment.id not in {step.segment.id for step in expired}
        for reason in (_leftover_reason(segment, log, start_offset),)
        if reason is not None
    ]
    moves = [MoveLogStart(start_offset)] if start_offset > log.log_start_offset else []
    return [*moves, *repeated, *expired, *leftover]


def log_bytes(log: ExpiryInput) -> int:
    """Return the size in bytes of a log, local and copied records together. A record in both places
    counts once.

    Copied segments count if they are finished and readable, and if their leader epochs agree with
    those of the log. Kafka also counts failed copies (KAFKA-17062) and displaced segments. If a
    segment begins below the log start offset, or overlaps the segment before it, only the
    corresponding fraction of its bytes counts.

    Local segments count if they begin above the highest copied offset. This function computes that
    offset, so it is never unknown (KAFKA-20732).
    """
    lineage = log.lineage
    highest = highest_remote(log.metadata, lineage).offset
    size_bytes = sum(
        segment.size_bytes
        for segment in log.local_segments
        if segment.base_offset > highest and segment.end_offset > log.log_start_offset
    )
    start_offset = log.log_start_offset
    for segment in sorted(_counted(log.metadata, lineage).values(), key=_by_offsets):
        size_bytes += _bytes_from(segment, start_offset)
        start_offset = max(start_offset, Offset(segment.end_offset + 1))
    return size_bytes


def _by_offsets(segment: RemoteSegment) -> tuple[Offset, Offset]:
    return segment.start_offset, segment.end_offset


def _bytes_from(segment: RemoteSegment, offset: Offset) -> int:
    """Return the approximate size in bytes of a segment's records from an offset on. The bytes of
    the segment are assumed to be distributed evenly over its offsets."""
    end_offset = segment.end_offset + 1
    offsets = max(0, end_offset - max(offset, segment.start_offset))
    return segment.size_bytes * offsets // (end_offset - segment.start_offset)


def _counted(metadata: RemoteMetadata, lineage: Lineage) -> dict[RemoteSegmentId, RemoteSegment]:
    """Return the copied segments that count towards the size of a log, by id."""
    return {
        segment.id: segment
        for entry in lineage.entries
        for segment in metadata.readable_segments(entry.epoch)
        if lineage.contains(segment)
    }


def _in_order(log: ExpiryInput) -> Iterator[RemoteSegment]:
    """Yield finished copied segments in the order of their offsets. Only segments with at least one
    leader epoch of the log are included."""
    epochs = {entry.epoch for entry in log.epochs}
    found = [
        segment
        for segment in log.metadata.all_segments()
        if segment.state is RemoteSegmentState.COPY_FINISHED
        and any(entry.epoch in epochs for entry in segment.leader_epochs)
    ]
    yield from sorted(found, key=_by_offsets)


def _expired(log: ExpiryInput, lineage: Lineage) -> tuple[list[DeleteSegment], Offset]:
    """Return the segments to delete because of retention or the log start offset, and the log start
    offset after these deletions.

    The segments are deleted in the order of their end offsets. If only some deletions succeed, the
    remaining records therefore have no gap, and another leader can adapt its log start offset
    (`first_readable_offset`).
    """
    counted = _counted(log.metadata, lineage)
    excess_bytes = log_bytes(log) - log.retention_bytes if log.retention_bytes >= 0 else 0
    first_epoch = lineage.entries[0].epoch if lineage.entries else _last_epoch(log.epochs)
    start_offset = log.log_start_offset
    local_start = log.local_segments[0].base_offset if log.local_segments else log.end_offset
    reasons: dict[RemoteSegmentId, str] = {}
    segments = list(_in_order(log))
    for segment in segments:
        if not lineage.contains(segment) or segment.end_offset < start_offset:
            continue
        if segment.end_offset >= log.high_watermark:
            break
        if segment.start_offset > max(start_offset, local_start):
            break  # records before it are only on the disk, and may be younger
        if segment.id not in counted:
            continue  # displaced: the segment that covers it decides
        removed_bytes = _bytes_from(segment, start_offset)
        if _is_old(segment, log):
            reasons[segment.id] = f"it is older than retention.ms={log.retention_ms}"
        elif 0 < removed_bytes <= excess_bytes:
            reasons[segment.id] = f"the log exceeds retention.bytes={log.retention_bytes}"
        else:
            break
        excess_bytes = max(0, excess_bytes - removed_bytes)
        start_offset = max(start_offset, Offset(segment.end_offset + 1))
    for segment in segments:
        is_passed = all(entry.epoch <= first_epoch for entry in segment.leader_epochs)
        if segment.end_offset < start_offset and (is_passed or lineage.contains(segment)):
            reasons.setdefault(segment.id, f"it is below the log start {start_offset}")
    found = [
        DeleteSegment(segment, reasons[segment.id])
        for segment in sorted(segments, key=lambda segment: segment.end_offset)
        if segment.id in reasons
    ]
    return found, start_offset


def _is_old(segment: RemoteSegment, log: ExpiryInput) -> bool:
    """Return whether all records of a segment are older than the retention time. For records
    without timestamps, the time of the copy is used. A segment with a timestamp in the future is
    not old."""
    if log.retention_ms < 0:
        return False
    newest_ms = segment.max_timestamp_ms
    if newest_ms < 0:
        newest_ms = segment.event_timestamp_ms
    return newest_ms < log.now_ms - log.retention_ms


def _last_epoch(epochs: Sequence[EpochEntry]) -> Epoch:
    return epochs[-1].epoch if epochs else Epoch(-1)


def _leftover_reason(segment: RemoteSegment, log: ExpiryInput, start_offset: Offset) -> str | None:
    """Return the reason to delete a copied segment that is not part of the log, or None if it must
    be kept.

    An unfinished copy is deleted only if it is old. In addition, it must be below the log start
    offset, or all of its records must also be in finished segments. Otherwise its leader could
    still finish the copy, and a replica could delete its local segments because of that copy.
    """
    is_unknown = log.epochs and all(
        entry.epoch < log.epochs[0].epoch for entry in segment.leader_epochs
    )
    if is_unknown:
        return f"its leader epochs end before {log.epochs[0].epoch}, the oldest of the log"
    if segment.state is not RemoteSegmentState.COPY_STARTED:
        return None
    if log.now_ms - segment.event_timestamp_ms < log.abandoned_copy_ms:
        return None
    if segment.end_offset < start_offset or _is_replaced(segment, log.metadata):
        return "its copy was abandoned"
    return None


def _is_replaced(segment: RemoteSegment, metadata: RemoteMetadata) -> bool:
    """Return whether all records of an unfinished copy are also in finished segments."""
    for entry in segment.leader_epochs:
        offset = entry.start_offset
        while offset <= segment.end_offset_of(entry.epoch):
            finished = metadata.find(entry.epoch, offset)
            if finished is None:
                return False
            offset = Offset(finished.end_offset_of(entry.epoch) + 1)
    return True
