"""Copied segments that a leader deletes from the object store, in order. Pure.

The plan is a list of steps, and a driver ends at the first one that fails. The log start moves
before any segment is deleted: whichever replica leads next, a record at or above its log start is
never in a segment that is being deleted.
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
"""Age in ms at which an unfinished copy of a former leader counts as abandoned. If it is shorter, a
copy on a slow line is deleted while it is written, and its last objects are left in the store. If
it is longer, the objects of failed copies cost storage for longer."""


class MoveLogStart(NamedTuple):
    """Step: raise the log start offset, durably and before the next step."""

    offset: Offset


class DeleteSegment(NamedTuple):
    """Step: write DELETE_STARTED unless the segment has this state, delete its objects, and remove
    it from the metadata."""

    segment: RemoteSegment
    reason: str
    """Reason of the deletion, for the log."""


ExpiryStep = MoveLogStart | DeleteSegment


@frozen(kw_only=True)
class ExpiryInput:
    """State of a leader's log from which the deletion of copied segments is planned. The metadata
    must be complete up to the moment when the leader was elected."""

    metadata: RemoteMetadata
    epochs: Sequence[EpochEntry]
    """Leader epochs in the epoch cache, which reaches down to the log start offset."""
    local_segments: Sequence[LocalSegment]
    log_start_offset: Offset
    high_watermark: Offset
    end_offset: Offset
    retention_ms: int
    """Age in ms at which segments expire, or -1 if they never do."""
    retention_bytes: int
    """Largest size in bytes of the log in both tiers together, or -1 if it is not bounded."""
    now_ms: int
    being_copied: Collection[RemoteSegmentId] = ()
    """Segments that this leader is copying now."""
    abandoned_copy_ms: int = ABANDONED_COPY_MS

    @property
    def lineage(self) -> Lineage:
        """Leader epochs of the log's records."""
        return Lineage(self.epochs, start_offset=self.log_start_offset, end_offset=self.end_offset)


def plan_expiry(log: ExpiryInput) -> list[ExpiryStep]:
    """Return the steps that delete copied segments of a leader's log, in the order in which they
    must be made.

    Deletions that began earlier are repeated first. Then the finished segments of the log are
    considered by their offsets: below the log start, older than retention, in excess of the size.
    The first one to keep ends the walk, as does one that contains a record that is not committed.
    At last, abandoned copies and segments of forgotten leader epochs are deleted.
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
    """Return the size in bytes of a log in both tiers, in which each record counts once.

    Copied segments count if they are finished, readable and of the log's lineage: neither failed
    copies (KAFKA-17062) nor displaced segments, which Kafka counts. Of a segment that begins below
    the log start, or overlaps the one before it, the share of its offsets counts. Local segments
    count if they begin above the highest copied offset. That offset is computed here, so that it is
    never unknown (KAFKA-20732).
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
    """Return the size in bytes of a segment's records from an offset on, by their share."""
    end_offset = segment.end_offset + 1
    offsets = max(0, end_offset - max(offset, segment.start_offset))
    return segment.size_bytes * offsets // (end_offset - segment.start_offset)


def _counted(metadata: RemoteMetadata, lineage: Lineage) -> dict[RemoteSegmentId, RemoteSegment]:
    """Return the copied segments that count for the size of a log, by id."""
    return {
        segment.id: segment
        for entry in lineage.entries
        for segment in metadata.readable_segments(entry.epoch)
        if lineage.contains(segment)
    }


def _in_order(log: ExpiryInput) -> Iterator[RemoteSegment]:
    """Yield the finished segments of the leader epochs of a log by their offsets."""
    epochs = {entry.epoch for entry in log.epochs}
    found = [
        segment
        for segment in log.metadata.all_segments()
        if segment.state is RemoteSegmentState.COPY_FINISHED
        and any(entry.epoch in epochs for entry in segment.leader_epochs)
    ]
    yield from sorted(found, key=_by_offsets)


def _expired(log: ExpiryInput, lineage: Lineage) -> tuple[list[DeleteSegment], Offset]:
    """Return the deletions that retention and the log start demand, and the log start after those.

    They are in the order of end offsets. If only some are made, the records that are left have no
    hole, so that another leader's log start can follow (`first_readable_offset`).
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
    """Return whether a segment's records are older than retention allows. Without timestamps the
    time of its copy counts. A timestamp in the future never expires."""
    if log.retention_ms < 0:
        return False
    newest_ms = segment.max_timestamp_ms
    if newest_ms < 0:
        newest_ms = segment.event_timestamp_ms
    return newest_ms < log.now_ms - log.retention_ms


def _last_epoch(epochs: Sequence[EpochEntry]) -> Epoch:
    return epochs[-1].epoch if epochs else Epoch(-1)


def _leftover_reason(segment: RemoteSegment, log: ExpiryInput, start_offset: Offset) -> str | None:
    """Return the reason to delete a segment that is no part of the log, or None to keep it.

    An unfinished copy is deleted only if it is old, and is below the log start or has only records
    that finished segments contain, too. Its leader may still finish it, and a replica may then
    delete local segments because of it.
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
    """Return whether finished segments contain all records of an unfinished one."""
    for entry in segment.leader_epochs:
        offset = entry.start_offset
        while offset <= segment.end_offset_of(entry.epoch):
            finished = metadata.find(entry.epoch, offset)
            if finished is None:
                return False
            offset = Offset(finished.end_offset_of(entry.epoch) + 1)
    return True
