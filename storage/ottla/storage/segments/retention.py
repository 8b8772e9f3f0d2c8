"""Decision which of a log's oldest segments retention may delete. Pure."""

from collections.abc import Sequence

from ottla.model.ids import Offset
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.segment import Segment


def deletable_count(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: Offset,
    high_watermark: Offset,
    end_offset: Offset,
    now_ms: int,
) -> int:
    """Return the number of segments, counted from the oldest, that retention may delete. A segment
    that is empty or not completely committed is never deleted.

    A segment may be deleted in three cases:
    - It is below the log start offset.
    - Its newest record is older than `retention.ms`. Without timestamps, the time of the file's
      last write is used.
    - The remaining segments alone exceed `retention.bytes`.

    A segment that was emptied by compaction has no timestamp, and its file is as old as its source.
    It is deleted together with the next segment.
    """
    excess_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    for index, segment in enumerate(segments):
        is_last = index + 1 == len(segments)
        segment_end = end_offset if is_last else segments[index + 1].base_offset
        if segment_end > high_watermark or (is_last and not segment.size_bytes):
            break
        is_passed = segment_end <= log_start_offset and not is_last
        is_expired = False
        is_excess = False
        if config.is_deleted_by_retention:
            is_excess = config.retention_bytes >= 0 and excess_bytes >= segment.size_bytes
            is_emptied = segment.max_timestamp_ms < 0 and config.is_compacted and not is_last
            if is_emptied and not (is_passed or is_excess):
                continue
            newest_ms = segment.max_timestamp_ms
            if newest_ms < 0:
                newest_ms = min(segment.file.modified_ms, now_ms)
            is_expired = config.retention_ms >= 0 and now_ms - newest_ms > config.retention_ms
        if not (is_passed or is_expired or is_excess):
            break
        excess_bytes -= segment.size_bytes
        count = index + 1
    return count
