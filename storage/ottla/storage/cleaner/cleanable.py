"""The cleanable part of a log, and whether its compaction is due. Pure; the rules are Kafka's.

Records below the first dirty offset have been compacted. The cleanable part starts at that offset.
It ends at the lowest of these offsets:
- the last stable offset,
- the start of the active segment,
- the start of the first segment that is not flushed yet,
- the start of the first segment with a record younger than `min.compaction.lag.ms`.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from ottla.model.ids import Offset
from ottla.model.limits import INT64_MAX
from ottla.storage.segments.log_config import LogConfig


class SegmentState(Protocol):
    """Properties of a segment that decide whether the log cleaner compacts it."""

    base_offset: Offset
    size_bytes: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    is_sealed: bool


class CleanableLog(Protocol):
    """Properties of a log that decide whether the log cleaner compacts it."""

    @property
    def config(self) -> LogConfig:
        """Settings of the log, derived from its topic's settings."""
        ...

    @property
    def log_start_offset(self) -> Offset:
        """Offset of the first record of the log that clients may read."""
        ...

    @property
    def end_offset(self) -> Offset:
        """Offset that the next appended record gets."""
        ...

    @property
    def first_dirty_offset(self) -> Offset:
        """First offset of the log that has not been compacted."""
        ...

    @property
    def last_stable_offset(self) -> Offset:
        """Offset below which all transactions in the log have ended."""
        ...

    @property
    def segments(self) -> Sequence[SegmentState]:
        """The segments of the log, oldest first. The last segment is active: it receives
        appends."""
        ...


class Cleanable(NamedTuple):
    """The cleanable part of one log (see `cleanable_of`), with its sizes."""

    first_dirty_offset: Offset
    end_offset: Offset
    """First offset of the log that cannot be compacted now. Equals the first dirty offset if
    nothing can be compacted."""
    clean_bytes: int
    """Size in bytes of the log's segments that were compacted earlier."""
    cleanable_bytes: int
    delay_ms: int
    """Time in ms by which the age of the log's oldest dirty record exceeds `max.compaction.lag.ms`,
    or 0."""

    @property
    def ratio(self) -> float:
        """Dirty ratio of the log: the dirty bytes divided by all bytes that a compaction would
        read."""
        return self.cleanable_bytes / max(1, self.clean_bytes + self.cleanable_bytes)

    def is_due(self, config: LogConfig) -> bool:
        """Return whether the log should be compacted now, because of its dirty ratio or the age of
        its oldest dirty record."""
        if not self.cleanable_bytes:
            return False
        return self.delay_ms > 0 or self.ratio > config.min_cleanable_dirty_ratio


def first_dirty_offset_of(log: CleanableLog) -> Offset:
    """Return the offset at which the next compaction of a log starts. If the checkpoint is invalid,
    return the log start offset."""
    is_right = log.log_start_offset <= log.first_dirty_offset <= log.end_offset
    return log.first_dirty_offset if is_right else log.log_start_offset


def cleanable_of(log: CleanableLog, now_ms: int) -> Cleanable:
    """Return the part of a log that could be compacted now. `now_ms` is the time in ms since
    1970."""
    segments, config = log.segments, log.config
    first_dirty = first_dirty_offset_of(log)
    end_offset = min(log.last_stable_offset, segments[-1].base_offset)
    clean_bytes = cleanable_bytes = 0
    oldest_ms = INT64_MAX
    youngest_ms = now_ms - config.min_compaction_lag_ms
    for segment, following in pairwise(segments):
        if segment.base_offset >= end_offset:
            break
        is_clean = following.base_offset <= first_dirty
        is_young = config.min_compaction_lag_ms > 0 and segment.max_timestamp_ms > youngest_ms
        if not segment.is_sealed or (is_young and not is_clean):
            end_offset = segment.base_offset
            break
        if is_clean:
            clean_bytes += segment.size_bytes
            continue
        cleanable_bytes += segment.size_bytes
        if segment.first_timestamp_ms > 0:
            oldest_ms = min(oldest_ms, segment.first_timestamp_ms)
    if end_offset <= first_dirty:
        end_offset, cleanable_bytes, oldest_ms = first_dirty, 0, INT64_MAX
    delay_ms = 0
    if oldest_ms < INT64_MAX and config.max_compaction_lag_ms < INT64_MAX:
        delay_ms = max(0, now_ms - oldest_ms - config.max_compaction_lag_ms)
    return Cleanable(first_dirty, end_offset, clean_bytes, cleanable_bytes, delay_ms)


def hindrance_of(log: CleanableLog, now_ms: int) -> str:
    """Return the reason why compacting a log now would have no effect, or an empty string if it
    would have an effect."""
    found = cleanable_of(log, now_ms)
    if found.cleanable_bytes:
        return ""
    first_dirty = found.first_dirty_offset
    if first_dirty >= log.end_offset:
        return f"it is compacted up to its end, offset {log.end_offset}"
    if log.last_stable_offset <= first_dirty:
        return (
            f"records from offset {log.last_stable_offset} on are not committed yet, or belong to "
            "an open transaction"
        )
    *closed, active = log.segments
    if first_dirty >= active.base_offset:
        return f"all its dirty records, from offset {first_dirty} on, are in the active segment"
    if not all(segment.is_sealed for segment in closed):
        return f"records from offset {first_dirty} on are not flushed yet"
    return f"records from offset {first_dirty} on are younger than min.compaction.lag.ms"
