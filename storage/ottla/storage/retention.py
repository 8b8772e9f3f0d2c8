"""Which of a log's oldest segments may go.  Pure."""

from collections.abc import Sequence

from ottla.model.ids import Offset
from ottla.storage.log_config import LogConfig
from ottla.storage.segment import Segment


def deletable_count(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: Offset,
    high_watermark: Offset,
    end_offset: Offset,
    now_ms: int,
) -> int:
    """Return how many segments from the oldest on may go: never an uncommitted or empty one.

    A segment goes when the log start has passed it, when its newest record (without timestamps, the
    last write of its file) is older than `retention.ms`, or when the rest alone fills
    `retention.bytes`.  One whose records compaction took has no timestamp, and a file that is as
    old as its source: it goes with the next one.
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
