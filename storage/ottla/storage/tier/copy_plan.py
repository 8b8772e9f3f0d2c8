"""Selection of a leader's local segments to copy to the object store, and the offset up to which
the log is copied. Pure.

Only closed segments below the last stable offset are copied, in the order of their offsets. The
copied part of a log therefore has no gaps.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.model.ids import NO_EPOCH, NO_OFFSET, Offset, OffsetAndEpoch
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier.lineage import Lineage, epochs_with_records
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import RemoteSegmentState


class LocalSegment(NamedTuple):
    """One segment of a log on this broker's disk. The last segment of a log is active (receives
    appends), and all others are closed."""

    base_offset: Offset
    end_offset: Offset
    """Offset after the segment's last record: the base offset of the next segment, or the log's end
    offset."""
    size_bytes: int
    max_timestamp_ms: int
    """Largest timestamp of the segment's records, in ms since 1970, or -1 if they have none."""
    modified_ms: int = 0
    """Time at which the segment's file was last written, in ms since 1970."""


class CopyLag(NamedTuple):
    """Conditions under which a closed segment is due to be copied (KIP-1241): its age in ms, or the
    number of bytes in later segments.

    A segment is due if at least one condition is met. A negative value disables its condition. If a
    value is 0, every closed segment is due.
    """

    age_ms: int = 0
    size_bytes: int = -1


def effective_lag(lag: CopyLag, *, local_retention_ms: int, local_retention_bytes: int) -> CopyLag:
    """Return the effective copy lag. Each value of -1 (in the settings remote.copy.lag.ms and
    remote.copy.lag.bytes) is replaced by the effective local retention."""
    age_ms, size_bytes = lag
    return CopyLag(
        age_ms=local_retention_ms if age_ms == -1 else age_ms,
        size_bytes=local_retention_bytes if size_bytes == -1 else size_bytes,
    )


def segments_to_copy(
    segments: Sequence[LocalSegment],
    epochs: Sequence[EpochEntry],
    *,
    copied_offset: Offset,
    log_start_offset: Offset,
    last_stable_offset: Offset,
    lag: CopyLag,
    now_ms: int,
) -> list[LocalSegment]:
    """Return the segments of the local log that are to be copied to the object store now, in order.
    The first segment contains the offset after `copied_offset`, or the log start offset if it is
    higher.

    The list ends before the first segment that is not closed, not below the last stable offset, or
    not due. It also ends before a segment that has a record of unknown leader epoch, because
    readers could not find that record in the copy. A segment with a timestamp in the future is due.
    """
    first = max(copied_offset + 1, log_start_offset)
    rest = [segment for segment in segments if segment.end_offset > first]
    later_bytes = sum(segment.size_bytes for segment in rest)
    found: list[LocalSegment] = []
    for segment in rest[:-1]:
        later_bytes -= segment.size_bytes
        if segment.end_offset > last_stable_offset or not _is_due(
            segment, lag, later_bytes, now_ms
        ):
            break
        start = max(segment.base_offset, log_start_offset)
        known = epochs_with_records(epochs, start_offset=start, end_offset=segment.end_offset)
        if not known or known[0].start_offset > start:
            break
        found.append(segment)
    return found


def epochs_of(segment: LocalSegment, epochs: Sequence[EpochEntry]) -> tuple[EpochEntry, ...]:
    """Return the leader epochs of the records in a local segment, each with its first offset in the
    segment."""
    return epochs_with_records(
        epochs, start_offset=segment.base_offset, end_offset=segment.end_offset
    )


def _is_due(segment: LocalSegment, lag: CopyLag, later_bytes: int, now_ms: int) -> bool:
    if lag.age_ms == 0 or lag.size_bytes == 0:
        return True
    age_ms = now_ms - segment.max_timestamp_ms
    is_old = lag.age_ms > 0 and (age_ms < 0 or age_ms >= lag.age_ms)
    return is_old or (lag.size_bytes > 0 and later_bytes >= lag.size_bytes)


def highest_remote(metadata: RemoteMetadata, lineage: Lineage) -> OffsetAndEpoch:
    """Return the highest copied offset of the log, and its leader epoch, or (-1, -1) if nothing is
    copied. ListOffsets returns these values for timestamp -5.

    The offset belongs to the newest leader epoch that has copied records. If this epoch ends at a
    lower offset in the log than in the copied segments, the lower offset is returned.
    """
    for entry, end_offset in reversed(list(lineage.ranges())):
        highest = metadata.highest_offset(entry.epoch)
        if highest is not None:
            return OffsetAndEpoch(Offset(min(highest, end_offset - 1)), entry.epoch)
    return OffsetAndEpoch(NO_OFFSET, NO_EPOCH)


def copied_offset(
    metadata: RemoteMetadata, lineage: Lineage, *, local_log_start_offset: Offset
) -> Offset:
    """Return the highest offset up to which every record, from the local log start offset on, is
    readable in the object store. If the first record is not readable there, the result is the
    offset before the local log start offset.

    Copying continues after the returned offset, and local segments up to it may be deleted. Kafka
    uses the highest copied offset (`highest_remote`) instead, and assumes that no record below it
    is missing.
    """
    offset = max(local_log_start_offset, lineage.start_offset)
    for entry, end_offset in lineage.ranges():
        if end_offset <= offset:
            continue
        if entry.start_offset > offset:
            break
        while offset < end_offset:
            segment = metadata.find(entry.epoch, offset)
            if segment is None:
                return Offset(offset - 1)
            offset = Offset(min(segment.end_offset_of(entry.epoch) + 1, end_offset))
    return Offset(offset - 1)


def log_start_after_election(
    metadata: RemoteMetadata,
    epochs: Sequence[EpochEntry],
    *,
    log_start_offset: Offset,
    local_log_start_offset: Offset,
    end_offset: Offset,
) -> Offset:
    """Return the log start offset of a new leader, which is never below `log_start_offset`. It is
    the lowest start offset of a finished copy, in the oldest leader epoch with a finished copy. If
    there is no copy, it is the local log start offset.

    Segments that are being copied or deleted are ignored (Kafka includes them), because the former
    leader raised its log start offset before it deleted them. Segments beyond the end of the log,
    which an unclean election can leave, are ignored too. The caller waits until the high watermark
    has reached the result.
    """
    for entry in epochs:
        starts = [
            segment.leader_epochs[0].start_offset  # no look-up finds records before it
            for segment in metadata.segments_of(entry.epoch)
            if segment.state is RemoteSegmentState.COPY_FINISHED
            and segment.start_offset < end_offset
        ]
        if starts:
            return max(log_start_offset, min(starts))
    return max(log_start_offset, local_log_start_offset)


def first_readable_offset(
    metadata: RemoteMetadata, lineage: Lineage, *, local_log_start_offset: Offset
) -> Offset:
    """Return the lowest offset of a log, at or above its log start offset, whose record is readable
    locally or in the object store. The caller raises the log start offset to the result.

    The result is above the log start offset only if another broker has deleted copied segments of
    this log: nothing stops a former leader that does not know of its successor yet.
    """
    for entry, end_offset in lineage.ranges():
        for segment in metadata.readable_segments(entry.epoch):
            start = max(segment.start_offset_of(entry.epoch), entry.start_offset)
            end = min(segment.end_offset_of(entry.epoch) + 1, end_offset)
            if start < end:
                return min(Offset(start), max(local_log_start_offset, lineage.start_offset))
    return max(local_log_start_offset, lineage.start_offset)
