"""The segments, watermarks, epochs and producers of one log, which the log's components (appender,
reader, flusher and others) share.

Invariants:
- OffsetsInOrder: log start <= last stable <= high watermark <= end, and
  log start <= local start <= high watermark.
- ActiveIsLast: the last segment receives the appends.
- WatermarkNeverRecedes, except by truncation.
"""

from bisect import bisect_right
from collections.abc import Callable

from ottla.model.ids import NO_OFFSET, Offset
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.log.log_owner import NO_OWNER, ignore_truncation
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.recovery.recovery import LoadedLog
from ottla.storage.segments.epoch_cache import EpochCache
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.segment import Segment
from ottla.storage.tier.copy_plan import LocalSegment
from ottla.storage.tier.relief_plan import CopiedSegment, TieredLogSpace


class LogState:
    """The state of one log, which all components of the log read and change."""

    __slots__ = (
        "config",
        "copied_offset",
        "directory",
        "disk",
        "durable_epochs",
        "durable_start_offset",
        "end_offset",
        "epochs",
        "epochs_written_change",
        "first_dirty_offset",
        "generation",
        "high_watermark",
        "hole_offset",
        "is_being_cleaned",
        "is_removing",
        "is_truncating",
        "local_start_offset",
        "log_start_offset",
        "on_truncated",
        "owner",
        "passed",
        "producers",
        "recovery_point",
        "segments",
        "unflushed_since_ms",
        "unsealed",
    )

    def __init__(self, disk: Disk, directory: str, config: LogConfig, loaded: LoadedLog) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.owner = NO_OWNER
        self.on_truncated: Callable[[Offset], None] = ignore_truncation
        """Function that is called as soon as a truncation has removed all records from an offset
        on. A copy of the log can then remove them as well."""
        self.segments: list[Segment] = loaded.segments
        """The segments of the log, oldest first. The last segment is active: it receives
        appends."""
        # Tuples, because they rarely change, and those of most logs are the same empty tuple.
        self.unsealed = tuple(each for each in loaded.segments[:-1] if not each.is_sealed)
        """Closed segments of the log whose files, indexes included, are not known to be durable."""
        self.passed: tuple[Segment, ...] = ()
        """The oldest segments, already removed from the log in memory, but whose files are still in
        its directory."""
        self.generation = 0
        """Number of truncations of the log and removals of its segments so far. A task compares the
        numbers before and after a wait to detect a truncation or removal."""
        self.is_truncating = False
        """True while a truncation of the log is running. After a crash in that time, records that
        the truncation has removed may reappear."""
        self.is_removing = False
        """True while the files of the segments in `passed` (removed from the log in memory) are
        being removed."""
        self.is_being_cleaned = False
        """True while segments of the log are being compacted. No segment is removed until that
        ends."""
        self.epochs = loaded.epochs
        self.durable_epochs = loaded.epochs_data
        """Bytes of the `leader-epoch-checkpoint` file that are known to be durable (NO_EPOCHS if
        the file does not exist), or None if the durable bytes are unknown."""
        self.epochs_written_change: int | None = None
        """`change_count` of the leader epochs when they were last written to their file. None if
        they were not written yet."""
        self.producers: ProducerStates = loaded.producers
        self.log_start_offset: Offset = loaded.log_start_offset
        self.durable_start_offset: Offset = loaded.log_start_offset
        """Lower bound of the log start offset in the checkpoint file."""
        self.local_start_offset: Offset = loaded.log_start_offset
        """Offset of the first record of the log that is on the disk and that clients may read. Only
        in a tiered log, it is above the log start offset: the object store has the records between
        the two offsets. This is an attribute, not a property, because every fetch reads it."""
        self.note_local_start()
        self.copied_offset: Offset = NO_OFFSET
        """Last offset up to which all records of a tiered log are known to be readable in the
        object store. Segments above this offset are not removed to save space. -1 until the manager
        of tiered storage sets the offset."""
        self.end_offset: Offset = loaded.end_offset
        # Only committed segments are removed: everything below the local start is committed.
        self.high_watermark: Offset = self.local_start_offset
        self.recovery_point: Offset = loaded.recovery_point
        """Offset below which all records of the log are durable, together with all data that a
        recovery of them needs."""
        self.first_dirty_offset: Offset = loaded.log_start_offset
        """Offset below which all records of the log have been compacted."""
        self.hole_offset: Offset | None = None
        """Start of the first range of offsets that is missing because segments were lost. None if
        no such hole is known."""
        self.unflushed_since_ms: int | None = None
        """Time of the oldest append that is not flushed, in ms of the monotonic clock, or None if
        every append is flushed. `flush.ms` is measured from this time."""
        self.note_hole(loaded.hole_offset)

    @property
    def active(self) -> Segment:
        """The active segment of the log, which receives the appends."""
        return self.segments[-1]

    @property
    def is_empty(self) -> bool:
        """True if the log has a single segment, and that segment has no records."""
        return len(self.segments) == 1 and not self.segments[-1].size_bytes

    def last_stable_offset(self) -> Offset:
        """Return the offset below which READ_COMMITTED consumers may read: all transactions below
        it have ended. This is a method because each fetch calls it, and a property takes longer."""
        first_unstable = self.producers.first_unstable_offset()
        if first_unstable is None or first_unstable >= self.high_watermark:
            return self.high_watermark
        return max(first_unstable, self.log_start_offset)

    @property
    def recovery_checkpoint(self) -> Offset:
        """Offset from which the next start of the broker checks the log after a crash. All segments
        below this offset are sealed (all their files are durable).

        The recovery point may be higher, because it ignores indexes, which are flushed when a
        segment is sealed. Startup checks whole segments, so a difference within a segment has no
        effect.
        """
        first = next((segment for segment in self.passed if not segment.is_sealed), None)
        if first is None:
            first = self.unsealed[0] if self.unsealed else self.active
        return min(self.recovery_point, first.base_offset)

    def index_of(self, offset: Offset) -> int:
        """Return the position in `segments` of the segment that contains an offset."""
        segments = self.segments
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        found = bisect_right(segments, offset, key=lambda segment: segment.base_offset)
        return max(0, found - 1)

    def local_segments(self) -> list[LocalSegment]:
        """Return the properties of the log's segments that decisions of tiered storage need, oldest
        segment first."""
        segments = self.segments
        ends = [segment.base_offset for segment in segments[1:]]
        return [
            LocalSegment(
                base_offset=segment.base_offset,
                end_offset=end_offset,
                size_bytes=segment.size_bytes,
                max_timestamp_ms=segment.max_timestamp_ms,
                modified_ms=segment.file.modified_ms if segment.max_timestamp_ms < 0 else 0,
            )
            for segment, end_offset in zip(segments, [*ends, self.end_offset], strict=True)
        ]

    def note_reads(self, now_ms: int) -> None:
        """Set the time of the last read of the segments that were read since the last call."""
        for segment in self.segments:
            if segment.is_read:
                segment.is_read = False
                segment.read_ms = now_ms

    def tiered_space(self, now_ms: int) -> TieredLogSpace:
        """Return the disk usage of a tiered log: the segments whose local files may be deleted,
        because the object store has them, and the size of the active segment."""
        limit = min(self.copied_offset + 1, self.high_watermark)
        ends = [segment.base_offset for segment in self.segments[1:]]
        copied = []
        for segment, end_offset in zip(self.segments, ends, strict=False):
            if end_offset > limit:
                break
            newest_ms = segment.max_timestamp_ms
            if newest_ms < 0:
                newest_ms = segment.file.modified_ms
            used_ms = max(min(newest_ms, now_ms), segment.read_ms)
            copied.append(CopiedSegment(end_offset, segment.size_bytes, used_ms))
        has_uncopied = len(copied) < len(ends)
        return TieredLogSpace(
            copied, self.active.size_bytes if self.config.is_copied else 0, has_uncopied
        )

    def replace_epochs(self, epochs: EpochCache) -> None:
        """Replace the log's leader epochs. The next write of the epoch file then compares their
        bytes with the durable ones."""
        self.epochs = epochs
        self.epochs_written_change = None

    def note_hole(self, offset: Offset | None) -> None:
        """Set the start of the first range of offsets that is missing because segments were lost.
        None means that no such hole is known. A hole at or above the end of the log is ignored."""
        self.hole_offset = None if offset is None or offset >= self.end_offset else offset

    def raise_log_start(self, offset: Offset) -> None:
        """Raise the log start offset to at least `offset`."""
        self.log_start_offset = max(self.log_start_offset, offset)
        self.note_local_start()
        self.producers.on_log_start(self.log_start_offset)

    def note_local_start(self) -> None:
        """Set the local start offset, after the log start or the first segment has changed."""
        self.local_start_offset = max(self.log_start_offset, self.segments[0].base_offset)

    def update_high_watermark(self, offset: Offset) -> bool:
        """Raise the high watermark to `offset`, but not above the end offset. Returns True if the
        high watermark changed."""
        if offset > self.end_offset:
            offset = self.end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.producers.completed:
            self.producers.on_high_watermark(offset)
        return True
