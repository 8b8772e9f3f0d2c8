"""The segments, watermarks, epochs and producers of one log, which its components share.

Invariants: OffsetsInOrder (log start <= last stable <= high watermark <= end), ActiveIsLast (the
last segment receives the appends), WatermarkNeverRecedes (except by truncation).
"""

from bisect import bisect_right

from ottla.model.ids import Offset
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.recovery.recovery import LoadedLog
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.segment import Segment


class LogState:
    """The state of one log, which all its components read and change."""

    __slots__ = (
        "config",
        "directory",
        "disk",
        "end_offset",
        "epochs",
        "first_dirty_offset",
        "generation",
        "high_watermark",
        "hole_offset",
        "is_being_cleaned",
        "is_removing",
        "is_truncating",
        "log_start_offset",
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
        self.segments: list[Segment] = loaded.segments
        """The segments, oldest first; the last one is active."""
        self.unsealed = [segment for segment in loaded.segments[:-1] if not segment.is_sealed]
        """Closed segments whose files, indexes included, are not known to be durable."""
        self.passed: list[Segment] = []
        """Oldest segments that were removed from the log in memory, but whose files are still in
        its directory."""
        self.generation = 0
        """Number of truncations and removals so far. Overlapping tasks compare this number to
        detect a truncation or removal."""
        self.is_truncating = False
        """True while a truncation is running. After a crash, records that the truncation has
        removed may reappear."""
        self.is_removing = False
        """True while files of segments in `passed` are being removed."""
        self.is_being_cleaned = False
        """True while segments are being compacted. No segment is removed until that ends."""
        self.epochs = loaded.epochs
        self.producers: ProducerStates = loaded.producers
        self.log_start_offset: Offset = loaded.log_start_offset
        self.end_offset: Offset = loaded.end_offset
        self.high_watermark: Offset = loaded.log_start_offset
        self.recovery_point: Offset = loaded.recovery_point
        """Offset below which everything is durable, together with all data that its recovery
        needs."""
        self.first_dirty_offset: Offset = loaded.log_start_offset
        """Offset below which all records have been compacted."""
        self.hole_offset: Offset | None = None
        """Start of the first hole left by lost segments, or None if none is known."""
        self.unflushed_since_ms: int | None = None
        """Monotonic time in ms of the oldest unflushed append, from which `flush.ms` is measured.
        None if every append is flushed."""
        self.note_hole(loaded.hole_offset)

    @property
    def active(self) -> Segment:
        """The segment that receives the appends."""
        return self.segments[-1]

    @property
    def is_empty(self) -> bool:
        """True if the log has a single segment without records."""
        return len(self.segments) == 1 and not self.segments[-1].size_bytes

    @property
    def last_stable_offset(self) -> Offset:
        """Offset below which READ_COMMITTED consumers may read."""
        first_unstable = self.producers.first_unstable_offset
        if first_unstable is None or first_unstable >= self.high_watermark:
            return self.high_watermark
        return max(first_unstable, self.log_start_offset)

    @property
    def recovery_checkpoint(self) -> Offset:
        """Offset from which the next start checks the log. All segments below it are sealed (all
        their files are durable).

        The recovery point may be higher, because it does not cover indexes, which are flushed when
        a segment is sealed. Startup checks whole segments, so the difference within a segment has
        no effect.
        """
        first = next((segment for segment in self.passed if not segment.is_sealed), None)
        if first is None:
            first = self.unsealed[0] if self.unsealed else self.active
        return min(self.recovery_point, first.base_offset)

    def index_of(self, offset: Offset) -> int:
        """Return the position, in `segments`, of the segment whose range contains an offset."""
        segments = self.segments
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        found = bisect_right(segments, offset, key=lambda segment: segment.base_offset)
        return max(0, found - 1)

    def note_hole(self, offset: Offset | None) -> None:
        """Set the start of the first hole that lost segments left. A hole at or above the end of
        the log is ignored."""
        self.hole_offset = None if offset is None or offset >= self.end_offset else offset

    def raise_log_start(self, offset: Offset) -> None:
        """Raise the log start offset to at least `offset`."""
        self.log_start_offset = max(self.log_start_offset, offset)
        self.producers.on_log_start(self.log_start_offset)

    def update_high_watermark(self, offset: Offset) -> bool:
        """Raise the high watermark, but not above the end offset. Returns True if it changed."""
        if offset > self.end_offset:
            offset = self.end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.producers.completed:
            self.producers.on_high_watermark(offset)
        return True
