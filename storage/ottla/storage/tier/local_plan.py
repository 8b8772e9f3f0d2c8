"""Decides which local segments a tiered log deletes from its disk. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.model.ids import Offset
from ottla.storage.tier.copy_plan import LocalSegment


class LocalDeletion(NamedTuple):
    """Result of the decision which of the oldest local segments a tiered log deletes."""

    segment_count: int
    """Number of segments to delete, counted from the oldest."""
    is_roll_due: bool
    """True if the active segment exceeds local retention. The log then closes the segment, so that
    it can be copied and deleted."""
    moves_log_start: bool
    """True if the deleted records are not in the object store. The log start offset then moves too,
    not only the local log start offset."""


def plan_local_deletion(
    segments: Sequence[LocalSegment],
    *,
    copied_offset: Offset,
    log_start_offset: Offset,
    high_watermark: Offset,
    retention_ms: int,
    retention_bytes: int,
    is_copied: bool,
    now_ms: int,
) -> LocalDeletion:
    """Return the number of oldest local segments that a replica may delete from its disk.

    A segment is deleted in two cases: it is below the log start, or it exceeds local retention
    (`effective_local_retention`) and its records are in the object store. The object store has all
    records up to and including `copied_offset`. If the log is not copied (`is_copied` is False),
    local retention suffices. A negative retention is unlimited. Uncommitted records and the active
    segment are never deleted.
    """
    excess_bytes = sum(segment.size_bytes for segment in segments) - retention_bytes
    count, is_roll_due = 0, False
    for index, segment in enumerate(segments):
        is_active = index + 1 == len(segments)
        is_passed = segment.end_offset <= log_start_offset and not is_active
        is_excess = retention_bytes >= 0 and excess_bytes >= segment.size_bytes
        newest_ms = segment.max_timestamp_ms
        if newest_ms < 0:
            newest_ms = min(segment.modified_ms, now_ms)
        is_expired = retention_ms >= 0 and now_ms - newest_ms > retention_ms
        if segment.end_offset > high_watermark or not (is_passed or is_excess or is_expired):
            break
        if is_active:
            is_roll_due = segment.size_bytes > 0
            break
        if is_copied and not is_passed and segment.end_offset - 1 > copied_offset:
            break
        excess_bytes -= segment.size_bytes
        count = index + 1
    start_offset = segments[count - 1].end_offset if count else log_start_offset
    return LocalDeletion(
        segment_count=count,
        is_roll_due=is_roll_due,
        moves_log_start=not is_copied and start_offset > log_start_offset,
    )
