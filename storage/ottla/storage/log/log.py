"""One partition's log on disk.

Only the event loop writes to the log. Plain methods never await. Operations that may take long
(fsync, truncation, removal) are awaited, and the caller must not append during a truncation. A log
consists of its state and of components that act on it; each component documents its invariants. A
disk failure of any file is reported through `state.owner`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn
from uuid import UUID

from ottla.model.ids import NO_EPOCH, NO_OFFSET, Epoch, Offset, OffsetAndEpoch
from ottla.model.seams import Rng
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.log.appender import Appender
from ottla.storage.log.file_tasks import file_task, ignore_idle_files
from ottla.storage.log.flusher import LogFlusher
from ottla.storage.log.local_segment_source import LocalSegmentSource, producers_at_local_start
from ottla.storage.log.log_health import LogHealth
from ottla.storage.log.log_names import LogNames
from ottla.storage.log.log_reader import LogRead, LogReader
from ottla.storage.log.log_state import LogState
from ottla.storage.log.segment_files import SegmentFiles
from ottla.storage.log.segment_remover import SegmentRemover
from ottla.storage.log.segment_replacer import SegmentReplacer
from ottla.storage.log.truncator import Truncator
from ottla.storage.log.validate import Accepted
from ottla.storage.producers.producer_files import ProducerFiles
from ottla.storage.producers.producer_state import ProducerBudget, ProducerEntry, ProducerStates
from ottla.storage.producers.verification import VerificationGuard
from ottla.storage.recovery.recovery import (
    LoadedLog,
    LogLoader,
    Progress,
    keep_topic_id,
    load_topic_id,
)
from ottla.storage.recovery.segment_swap import CleanedFiles
from ottla.storage.segments.append_info import AppendInfo, AppendOrigin
from ottla.storage.segments.directory_view import DirectoryView
from ottla.storage.segments.epoch_cache import NO_EPOCHS, EpochCache, EpochEntry
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.timestamp_lookup import TimestampedOffset
from ottla.storage.tier.copy_plan import LocalSegment
from ottla.storage.tier.relief_plan import TieredLogSpace

CLOCK_DIFFERENCE_MS_MAX = 60_000
"""Largest time in ms by which a record's timestamp may be ahead of the broker's clock without being
reported. With a smaller value, the broker reports producers whose clocks are only slightly wrong.
With a larger one, a disk may fill up unexplained for longer."""


async def open_log(
    disk: Disk,
    directory: str,
    *,
    config: LogConfig,
    topic_id: UUID | None,
    is_clean: bool,
    recovery_point: Offset,
    log_start_offset: Offset,
    now_ms: int,
    rng: Rng | None = None,
    progress: Progress | None = None,
    view: DirectoryView | None = None,
) -> "Log":
    """Open the directory of a partition and recover its log. The directory is created if it does
    not exist. Returns the log.

    `is_clean` means that the log was closed by `close`. Otherwise, the log is checked from the
    offset `recovery_point` on. `view` contains the surveyed contents of an existing directory,
    whose topic id is `topic_id`. Raises RefusedError(INCONSISTENT_TOPIC_ID) if the directory
    belongs to another topic.
    """
    if view is None:
        await disk.makedirs(directory)
        topic_id = await load_topic_id(disk, directory, topic_id)
        view = DirectoryView(disk, directory)
    loaded = await LogLoader(disk, view, config, now_ms=now_ms, progress=progress).load(
        is_clean=is_clean, recovery_point=recovery_point, log_start_offset=log_start_offset
    )
    await keep_topic_id(disk, view, topic_id)
    return Log(disk, directory, config, topic_id, loaded, rng)


def new_log(
    disk: Disk,
    directory: str,
    *,
    config: LogConfig,
    topic_id: UUID,
    now_ms: int,
    rng: Rng | None = None,
) -> "Log":
    """Create and return the log object for a directory that was just created with the files of an
    empty segment.

    The result equals that of `open_log`. No file is read, so that many logs can be created in a
    short time.
    """
    beginning = Offset(0)
    segment = Segment(disk, directory, beginning, config, now_ms=now_ms, known_bytes=0)
    segment.has_index_names = False
    segment.activate(config)
    loaded = LoadedLog(
        segments=[segment],
        epochs=EpochCache(),
        producers=ProducerStates(beginning),
        log_start_offset=beginning,
        end_offset=beginning,
        recovery_point=beginning,
        snapshots=[],
        epochs_data=NO_EPOCHS,
    )
    return Log(disk, directory, config, topic_id, loaded, rng)


class Log:
    """The log of one partition, with its segments, watermarks, leader epochs and producers."""

    __slots__ = (
        "_files",
        "appender",
        "directory",
        "file_task_count",
        "health",
        "names",
        "on_files_idle",
        "reader",
        "state",
        "topic_id",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        topic_id: UUID | None,
        loaded: LoadedLog,
        rng: Rng | None,
    ) -> None:
        self.directory = directory
        self.topic_id = topic_id
        self.file_task_count = 0
        """Number of running tasks that use the log's files."""
        self.on_files_idle: Callable[[], None] = ignore_idle_files
        """Function that is called when the last task that uses the log's files has ended."""
        self.names = names = LogNames(disk, directory, topic_id)
        self.state = state = LogState(disk, directory, config, loaded)
        self.health = health = LogHealth(state)
        producer_files = ProducerFiles(disk, directory, loaded.snapshots)
        self._files = files = SegmentFiles(state, health, names, producer_files, rng)
        self.appender = Appender(state, health, files)
        self.reader = LogReader(state, health)
        """Reader of the log. Each fetch calls its `read_single` directly, to save a call."""

    # --- components that are created at each use: 300 bytes less per partition ---

    @property
    def _flusher(self) -> LogFlusher:
        return LogFlusher(self.state, self.health, self._files)

    @property
    def _truncator(self) -> Truncator:
        return Truncator(self.state, self.health, self._files)

    @property
    def _remover(self) -> SegmentRemover:
        return SegmentRemover(self.state, self.health, self._files)

    # --- state ---

    @property
    def config(self) -> LogConfig:
        """Settings of the log, derived from its topic's settings."""
        return self.state.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        state = self.state
        was_tiered, state.config = state.config.is_tiered, config
        if was_tiered and not config.is_tiered:
            # KIP-950: the records that only the object store has are deleted from there.
            state.raise_log_start(state.local_start_offset)
            state.copied_offset = NO_OFFSET

    @property
    def failure(self) -> str | None:
        """Reason why the log is offline, for example a failed disk. None if the log is online."""
        return self.health.failure

    @property
    def log_start_offset(self) -> Offset:
        """Offset of the first record of the log that clients may read."""
        return self.state.log_start_offset

    @property
    def local_start_offset(self) -> Offset:
        """Offset of the first record of the log that is on the disk and that clients may read. It
        is above the log start offset only in a tiered log."""
        return self.state.local_start_offset

    @property
    def is_tiered(self) -> bool:
        """True if the object store may have records of the log that are not on the disk."""
        return self.state.config.is_tiered

    @property
    def end_offset(self) -> Offset:
        """Offset that the next appended record gets."""
        return self.state.end_offset

    @property
    def high_watermark(self) -> Offset:
        """Offset below which all records are committed."""
        return self.state.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """Offset below which READ_COMMITTED consumers may read: all transactions below it have
        ended."""
        return self.state.last_stable_offset()

    @property
    def recovery_point(self) -> Offset:
        """Offset below which all records of the log are durable."""
        return self.state.recovery_point

    @property
    def recovery_checkpoint(self) -> Offset:
        """Offset from which the next start of the broker checks the log after a crash."""
        return self.state.recovery_checkpoint

    @property
    def hole_offset(self) -> Offset | None:
        """Start of the first range of offsets that is missing because segments were lost. None if
        no such hole is known."""
        return self.state.hole_offset

    @property
    def last_epoch(self) -> Epoch:
        """The newest leader epoch of the log, or -1 if the log has no epoch."""
        return self.state.epochs.latest

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments of the log, oldest first. The last segment is active: it receives
        appends."""
        return tuple(self.state.segments)

    @property
    def segment_count(self) -> int:
        """Number of segments of the log, at least one."""
        return len(self.state.segments)

    @property
    def size_bytes(self) -> int:
        """Size of the log's segments in bytes, without their indexes."""
        return sum(segment.size_bytes for segment in self.state.segments)

    @property
    def newest_path(self) -> str:
        """Path of the newest segment's `.log` file."""
        return self.state.active.file.path

    @property
    def active_producers(self) -> Mapping[int, ProducerEntry]:
        """State of each producer that the log knows, by producer id."""
        return self.state.producers.producers

    def note_hole(self, offset: Offset | None) -> None:
        """Set the start of the first range of offsets that is missing because segments were lost.
        None means that no such hole is known. A hole at or above the end of the log is ignored."""
        self.state.note_hole(offset)

    def update_high_watermark(self, offset: Offset) -> bool:
        """Raise the high watermark to `offset`, but not above the end offset. Returns True if the
        high watermark changed."""
        return self.state.update_high_watermark(offset)

    def assign_epoch(self, epoch: Epoch, start_offset: Offset) -> None:
        """Record that a leader epoch begins at an offset of the log. A new leader must call this
        method before it appends."""
        self.state.epochs.assign(epoch, start_offset)

    def end_offset_for_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the largest epoch in the log that is not above `epoch`, and the end offset of that
        epoch. Returns (-1, -1) if there is no such epoch."""
        return self.state.epochs.end_offset_for(epoch, self.state.end_offset)

    def epoch_of(self, offset: Offset) -> Epoch:
        """Return the leader epoch of the record at an offset, or -1 if the log does not know the
        epoch."""
        state = self.state
        return state.epochs.epoch_of(offset) if offset < state.end_offset else NO_EPOCH

    def refuse_slice(self, error: OSError) -> NoReturn:
        """Raise the RefusedError for an OSError that occurred while a slice of the log was read. A
        failed disk takes the log offline."""
        self.health.refuse(error)

    # --- appends ---

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: Epoch,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        first: Accepted | None = None,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Check batches, assign their offsets and append them to the log. Returns the offsets of
        the records. See `Appender` for the details."""
        return self.appender.append_as_leader(
            records, leader_epoch, now_ms, origin, first, guard, transaction_version
        )

    def append_as_follower(self, records: memoryview, *, now_ms: int) -> AppendInfo:
        """Append batches that were fetched from the leader, unchanged. Returns the offsets of the
        records. See `Appender` for the details."""
        return self.appender.append_as_follower(records, now_ms)

    def begin_verification(
        self, producer_id: int, *, epoch: int, sequence: int, is_bumping: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Return the guard (a token of KIP-890's verification) that permits appending the first
        batch of a transaction.

        Returns None if the transaction is already open in this log. Raises RefusedError if the
        producer epoch is old.
        """
        self.health.check_online()
        return self.state.producers.begin_verification(
            producer_id, epoch=epoch, sequence=sequence, is_bumping=is_bumping, now_ms=now_ms
        )

    # --- reads ---

    def read(
        self,
        offset: Offset,
        *,
        bytes_max: int,
        end_offset: Offset,
        at_least_one: bool,
        whole_batches: bool = False,
    ) -> LogRead:
        """Return the batches of the log as a file slice, beginning with the batch that contains
        `offset`. See `LogReader`."""
        return self.reader.read(offset, bytes_max, end_offset, at_least_one, whole_batches)

    async def read_cold(
        self, offset: Offset, *, bytes_max: int, end_offset: Offset, at_least_one: bool
    ) -> LogRead:
        """Return the same as `read`, after loading file ranges that are not in the page cache."""
        return await self.reader.read_cold(offset, bytes_max, end_offset, at_least_one)

    async def read_bytes(
        self, offset: Offset, *, bytes_max: int, end_offset: Offset
    ) -> bytes | bytearray:
        """Return the bytes of the log's batches from `offset` on. Returns at most `bytes_max`
        bytes. If the first batch is larger, only this batch is returned."""
        return await self.reader.read_bytes(offset, bytes_max, end_offset)

    @property
    def has_aborted_lately(self) -> bool:
        """True if an aborted transaction ended in the newest segment of the log."""
        return self.state.active.abort_count > 0

    def aborted_transactions(self, offset: Offset, end_offset: Offset) -> list[tuple[int, Offset]]:
        """Return the producer id and first offset of each aborted transaction that overlaps
        `[offset, end_offset)`."""
        return self.reader.aborted_transactions(offset, end_offset)

    async def offset_for_timestamp(
        self, timestamp_ms: int, end_offset: Offset
    ) -> TimestampedOffset | None:
        """Return offset, timestamp and leader epoch of the first record below `end_offset` whose
        timestamp is at least `timestamp_ms`. Returns None if there is no such record."""
        return await self.reader.offset_for_timestamp(timestamp_ms, end_offset)

    async def max_timestamp_offset(self, end_offset: Offset) -> TimestampedOffset | None:
        """Return offset, timestamp and leader epoch of the record below `end_offset` with the
        largest timestamp (ListOffsets -3). Returns None if no record has a timestamp."""
        return await self.reader.max_timestamp_offset(end_offset)

    # --- flushes ---

    @property
    def unflushed_since_ms(self) -> int | None:
        """Time of the oldest append that is not flushed, in ms of the monotonic clock, or None if
        every append is flushed. `flush.ms` is measured from this time."""
        return self.state.unflushed_since_ms

    @property
    def is_flush_due(self) -> bool:
        """True if at least `flush.messages` records of the log are not flushed."""
        state = self.state
        return state.end_offset - state.recovery_point >= state.config.flush_messages

    @property
    def unflushed_roll_offset(self) -> Offset | None:
        """End offset of the closed segments that are not flushed yet. None if all closed segments
        are flushed."""
        return self.state.active.base_offset if self.state.unsealed else None

    @file_task
    async def flush(self, up_to: Offset | None = None) -> Offset:
        """Make all records below the offset `up_to` durable; None means the whole log. Returns the
        recovery point, below which everything is then durable."""
        return await self._flusher.flush(up_to)

    async def write_back(self) -> None:
        """Ask the kernel to start writing the active segment's dirty pages to the disk. This makes
        nothing durable."""
        await self._flusher.write_back()

    @file_task
    async def keep(self) -> None:
        """Make the directory of a new log durable. Raises RefusedError if the log is offline or its
        disk fails."""
        await self._flusher.keep()

    @file_task
    async def roll(self, *, now_ms: int) -> None:
        """Begin a new active segment and flush the closed one. Does not roll if the active segment
        is empty."""
        await self._flusher.keep()
        if self.state.active.size_bytes:
            await self._flusher.flush(self._files.roll(self.state.end_offset, now_ms).base_offset)

    # --- removals ---

    @file_task
    async def truncate_to(self, offset: Offset) -> bool:
        """Remove all records of the log from `offset` on. Returns True if any were removed.

        A batch that contains `offset` is removed completely; see `Truncator`.
        """
        return await self._truncator.truncate_to(offset)

    @file_task
    async def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Remove all records of the log. It is then empty, and begins and ends at `offset`."""
        await self._truncator.truncate_fully_and_start_at(offset)

    @file_task
    async def delete_records_before(self, offset: Offset) -> None:
        """Raise the log start offset to `offset` durably, and remove the segments below it.

        Raises RefusedError(OFFSET_OUT_OF_RANGE) if the offset is above the high watermark.
        """
        await self._remover.delete_records_before(offset)

    def raise_log_start(self, offset: Offset) -> None:
        """Raise the log start offset to `offset` in memory; `delete_records_before` makes it
        durable."""
        self._remover.raise_log_start(offset)

    @file_task
    async def delete_old_segments(self, now_ms: int) -> int:
        """Remove the log's segments that exceed retention or are below the log start offset.
        Returns the number of removed segments. A tiered log removes only copied segments."""
        if self.state.config.is_tiered:
            return await self._remover.delete_local_segments(now_ms)
        return await self._remover.delete_old_segments(now_ms)

    def report_future_timestamps(self, now_ms: int) -> int | None:
        """Return the timestamp (in ms since 1970) of a record if it is ahead of the broker's clock
        and prevents the removal of the oldest segment. Each segment is reported only once.

        Returns None if the segment was reported before, if retention by time is off, or if the
        timestamp is ahead by at most `CLOCK_DIFFERENCE_MS_MAX`.
        """
        oldest = self.state.segments[0]
        config = self.config
        is_kept_by_time = config.is_deleted_by_retention and config.retention_ms >= 0
        is_ahead = oldest.max_timestamp_ms > now_ms + CLOCK_DIFFERENCE_MS_MAX
        if not is_kept_by_time or not is_ahead or oldest.is_future_reported:
            return None
        oldest.is_future_reported = True
        return oldest.max_timestamp_ms

    # --- tiered storage ---

    @property
    def copied_offset(self) -> Offset:
        """Highest offset up to which all records of a tiered log are known to be readable in the
        object store, or -1. Segments above this offset are not deleted to free disk space."""
        return self.state.copied_offset

    @copied_offset.setter
    def copied_offset(self, offset: Offset) -> None:
        self.state.copied_offset = offset

    def epochs(self) -> Sequence[EpochEntry]:
        """Return the leader epochs of the log with their start offsets, oldest first. The epochs of
        a tiered log begin at its log start, not only at its local start."""
        return self.state.epochs.entries

    def local_segments(self) -> list[LocalSegment]:
        """Return the properties of the log's segments that decisions of tiered storage need, oldest
        segment first. The last segment is active."""
        return self.state.local_segments()

    async def delete_local_segments(self, now_ms: int) -> int:
        """Remove the segments of a tiered log that are copied and exceed local retention. The log
        start offset stays unchanged. Returns the number of removed segments."""
        return await self.delete_old_segments(now_ms)

    def note_reads(self, now_ms: int) -> None:
        """Store the current time in each segment that was read since the previous call.
        `relief_plan` uses these times to delete the least recently read segments first."""
        self.state.note_reads(now_ms)

    def tiered_space(self, now_ms: int) -> TieredLogSpace:
        """Return the space that a tiered log takes on its disk: the segments that may be deleted
        locally, and the size of the active segment."""
        return self.state.tiered_space(now_ms)

    @file_task
    async def delete_copied_segments(self, end_offset: Offset) -> int:
        """Remove the segments of a tiered log that are copied and completely below `end_offset`,
        even if local retention would not remove them. The log start offset stays unchanged. Returns
        the number of removed segments."""
        return await self._remover.delete_copied_segments(end_offset)

    async def raise_log_start_to(self, offset: Offset) -> None:
        """Raise the log start offset to `offset` durably, before copied segments below it are
        deleted. Local segments below it are removed.

        Raises RefusedError(OFFSET_OUT_OF_RANGE) if the offset is above the high watermark.
        """
        await self.delete_records_before(offset)

    @file_task
    async def begin_at(
        self,
        offset: Offset,
        *,
        log_start_offset: Offset,
        epochs: Sequence[EpochEntry],
        producer_snapshot: bytes,
        now_ms: int,
    ) -> None:
        """Remove all records of the local log. The local log then begins and ends at `offset`, and
        the object store has the records from `log_start_offset` on.

        `epochs` are the leader epochs of those records, oldest first. `producer_snapshot` is the
        state of the producers at `offset`; `now_ms` becomes the last-seen time of these producers.
        Raises CorruptDataError if the snapshot is corrupt; nothing is removed then.
        """
        await self._truncator.begin_at(offset, log_start_offset, epochs, producer_snapshot, now_ms)

    @file_task
    async def producers_at_local_start(self) -> bytes:
        """Return the producers at the start of the log's first local segment, as the bytes of a
        producer snapshot (`.snapshot`)."""
        return await producers_at_local_start(self.state)

    def segment_source(self, base_offset: Offset) -> LocalSegmentSource:
        """Return the closed segment that begins at `base_offset`, as the source of a copy to the
        object store. Raises FileNotFoundError if the log has no such closed segment."""
        return LocalSegmentSource(self.state, self.flush, base_offset)

    # --- cleaning ---

    @property
    def is_being_changed(self) -> bool:
        """True while a truncation of the log or a removal of its segments is running."""
        state = self.state
        return state.is_truncating or state.is_removing or bool(state.passed)

    @property
    def is_being_cleaned(self) -> bool:
        """True while segments of the log are being compacted. No segment is removed until that
        ends."""
        return self.state.is_being_cleaned

    @is_being_cleaned.setter
    def is_being_cleaned(self, is_being_cleaned: bool) -> None:
        self.state.is_being_cleaned = is_being_cleaned

    @property
    def first_dirty_offset(self) -> Offset:
        """First offset of the log that has not been compacted."""
        return self.state.first_dirty_offset

    @first_dirty_offset.setter
    def first_dirty_offset(self, offset: Offset) -> None:
        self.state.first_dirty_offset = offset

    def note_clean_to(self, offset: Offset) -> None:
        """Set the first dirty offset, below which the log is compacted. The whole log counts as
        dirty if `offset` is outside the log."""
        state = self.state
        is_here = state.log_start_offset <= offset <= state.end_offset
        state.first_dirty_offset = offset if is_here else state.log_start_offset

    @file_task
    async def replace_segments(self, cleaned: CleanedFiles) -> None:
        """Durably replace segments of the log by a compacted segment; see `SegmentReplacer`."""
        await SegmentReplacer(self.state, self.health, self._files).replace(cleaned)

    # --- producers ---

    def share_producer_budget(self, budget: ProducerBudget) -> None:
        """Count the producers of this log in `budget`, a bound on the number of producers in
        several logs."""
        self.state.producers.share_budget(budget)

    def expire_producers(self, now_ms: int) -> int:
        """Remove the state of producers that were idle for longer than producer.id.expiration.ms.
        Returns the number of removed producers."""
        return self.state.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def has_late_transaction(self, seen_before_ms: int) -> bool:
        """Return whether the oldest open transaction has appended no batch since `seen_before_ms`
        (ms since 1970)."""
        seen_ms = self.state.producers.oldest_open_seen_ms
        return seen_ms is not None and seen_ms < seen_before_ms

    # --- two logs of one partition ---

    def take_over(self, other: "Log") -> None:
        """Adopt the state of `other`, another log of the same partition. All batches of `other`
        must be in this log.

        The adopted state is not part of the batches: leader epochs without a record, producers
        whose records are deleted, and watermarks.
        """
        state, others = self.state, other.state
        assert state.end_offset == others.end_offset
        state.config = others.config
        state.raise_log_start(others.log_start_offset)
        state.copied_offset = others.copied_offset
        state.high_watermark = others.high_watermark
        state.replace_epochs(EpochCache(others.epochs.entries))
        producers, others.producers = others.producers, ProducerStates(others.end_offset)
        others.producers.share_budget(producers.leave_budget())
        self._files.replace_producers(producers)

    def holds_all_of(self, other: "Log") -> bool:
        """Return whether this log contains all batches of `other`, another log of the same
        partition. The other log's last leader epoch must not end earlier in this log."""
        if other.end_offset == other.log_start_offset:
            return True
        place = self.end_offset_for_epoch(other.last_epoch)
        return place.epoch == other.last_epoch and place.offset >= other.end_offset

    def adopt_bounds(self, other: "Log") -> None:
        """Raise the log start offset and the high watermark to the values of `other`, another log
        of the same partition."""
        state = self.state
        state.raise_log_start(min(other.log_start_offset, state.end_offset))
        known = max(state.high_watermark, other.high_watermark, state.log_start_offset)
        state.high_watermark = min(state.end_offset, known)

    # --- end ---

    @file_task
    async def close(self) -> None:
        """Flush the log, trim its indexes, write its producer snapshot and close its files. A clean
        shutdown marker may be written only afterwards."""
        await self._flusher.flush_for_close()
        self.abandon()

    def abandon(self) -> None:
        """Close the log's files without flushing them, before its directory is removed or after a
        failure."""
        self.health.fail("the log is closed")
        state = self.state
        state.generation += 1
        state.producers.leave_budget()
        for segment in state.segments:
            segment.close()
