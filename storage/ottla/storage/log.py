"""One partition's log on disk: leader and follower appends, reads as file slices, watermarks.

One writer, on the loop.  Every plain method runs without awaiting, so nothing comes between a
check and its write; what may take long (fsync, truncation, removal) is awaited, and the caller
appends nothing while it truncates.  A batch's bytes are never copied and its records never looked
at, but for the topics that demand it.

Invariants: OffsetsInOrder (log start <= last stable <= high watermark <= end),
WatermarkNeverRecedes (but by truncation), RecoveryPointIsFlushed, and NoTornAppend: a write that
fails is taken back before it is answered; where that fails too, the log goes offline.  A failure of
its disk is reported (`on_disk_failed`), whichever file it struck and whoever met it.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset
from ottla.model.seams import Rng
from ottla.storage.append_info import AppendInfo, AppendOrigin
from ottla.storage.directory_view import DirectoryView
from ottla.storage.disk_seam import Chunk, Disk
from ottla.storage.epoch_cache import EpochCache
from ottla.storage.epoch_file import NO_EPOCHS
from ottla.storage.file_tasks import file_task
from ottla.storage.log_config import LogConfig
from ottla.storage.log_reads import ReadableLog
from ottla.storage.producer_state import ProducerEntry, ProducerRoom, ProducerStates
from ottla.storage.recovery import (
    LoadedLog,
    LogLoader,
    Progress,
    end_marker_of,
    keep_topic_id,
    load_topic_id,
)
from ottla.storage.segment import Segment
from ottla.storage.segment_swap import (
    CleanedFiles,
    decide_swap,
    end_offset_of,
    finish_swap,
    is_swap_decided,
    open_cleaned,
)
from ottla.storage.transaction_index import AbortedTransaction
from ottla.storage.validate import Accepted, accepted, gathered
from ottla.storage.verification import VerificationGuard
from ottla.wire.batch import (
    CONTROL_FLAG,
    LENGTH_END,
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    BatchHeader,
)
from ottla.wire.legacy import batches_of_any_format, is_crc_right

CLOCK_DIFFERENCE_MS_MAX = 60_000
"""How far a record's timestamp may be ahead of our clock before it is reported to keep a segment:
lower reports clocks that are a little off, higher lets a disk fill up unexplained for longer."""

Placed = tuple[BatchHeader, Offset, Epoch, memoryview]
"""A batch about to be written: its header, the offset and epoch it gets, its bytes."""


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
    """Open a partition's directory, which is made when it is not there, and recover its log.

    `is_clean` says that the log was closed by `close`; else all from `recovery_point` on is
    checked.  RefusedError(INCONSISTENT_TOPIC_ID) when the directory belongs to another topic.  With
    a `view` the directory is there, and its topic id known to be `topic_id`.
    """
    if view is None:
        await disk.makedirs(directory)
        topic_id = await load_topic_id(disk, directory, topic_id)
        view = DirectoryView(disk, directory)
    loaded = await LogLoader(disk, view, config, now_ms=now_ms, progress=progress).load(
        is_clean=is_clean, recovery_point=recovery_point, log_start_offset=log_start_offset
    )
    await keep_topic_id(disk, view, topic_id)
    log = Log(disk, directory, config, topic_id, loaded, rng)
    log.note_hole(loaded.hole_offset)
    return log


def new_log(
    disk: Disk,
    directory: str,
    *,
    config: LogConfig,
    topic_id: UUID,
    now_ms: int,
    rng: Rng | None = None,
) -> "Log":
    """Return the log of a directory that was just made with the files of an empty segment.

    It is what `open_log` comes to, but nothing is looked at: many are made at once.
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


class Log(ReadableLog):
    """One partition's records, on disk.  One writer; every plain method runs without awaiting."""

    # --- what it holds ---

    @property
    def active_producers(self) -> Mapping[int, ProducerEntry]:
        """Return the producers it remembers, by id."""
        return self._producers.producers

    def update_high_watermark(self, offset: Offset) -> bool:
        """Move the high watermark forward, at most to the end; return whether it moved."""
        if offset > self.end_offset:
            offset = self.end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self._producers.completed:
            self._producers.on_high_watermark(offset)
        return True

    def share_producer_room(self, room: ProducerRoom) -> None:
        """Bound the producers remembered together with other logs."""
        self._producers.enter(room)

    # --- two logs of one partition ---

    def take_over(self, other: "Log") -> None:
        """Become what another log of the partition is, whose batches are all here.

        What batches do not say comes from the other: leaderships that wrote nothing, producers
        whose records are deleted, watermarks.
        """
        assert self.end_offset == other.end_offset
        self.config = other.config
        self._raise_log_start(other.log_start_offset)
        self.high_watermark = other.high_watermark
        self._epochs = EpochCache(other._epochs.entries)
        self._epoch_file.forget()
        producers, other._producers = other._producers, ProducerStates(other.end_offset)
        other._producers.enter(producers.leave())
        self._replace_producers(producers)

    def holds_all_of(self, other: "Log") -> bool:
        """Return whether the other log's last leadership goes as far here as it does there."""
        if other.end_offset == other.log_start_offset:
            return True
        place = self.end_offset_for_epoch(other.last_epoch)
        return place.epoch == other.last_epoch and place.offset >= other.end_offset

    def keep_what_is_known_of(self, other: "Log") -> None:
        """Begin no earlier, and count no less for committed, than another log of the partition."""
        self._raise_log_start(min(other.log_start_offset, self.end_offset))
        self.high_watermark = min(
            self.end_offset, max(self.high_watermark, other.high_watermark, self.log_start_offset)
        )

    # --- appending ---

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
        """Check, give offsets and write; RefusedError with Kafka's code when it cannot be.

        A client's append is one batch; raft and coordinators may append several, as one write.
        `first` is the first batch where it was checked before; `guard` what a transactional batch
        was verified with; `transaction_version` what a marker was written under.  Offsets and the
        epoch are set where the records lie, if that memory may be written.
        """
        if self.failure is not None:
            self._check_online()
        config = self.config
        log_append_time_ms = now_ms if config.is_log_append_time else NO_TIMESTAMP
        base_offset = next_offset = self.end_offset
        max_timestamp = NO_TIMESTAMP
        placed: list[Placed] = []
        chunks: list[Chunk] = []
        size = 0
        while True:
            if first is None:
                header, batch, taken_bytes = accepted(records, origin, config, now_ms=now_ms)
            else:
                (header, batch, taken_bytes), first = first, None
            if header.producer_id >= 0:
                duplicate = self._duplicate_of(batch, header, origin, guard, transaction_version)
                if duplicate is not None:
                    return duplicate
            chunks += gathered(batch, header, next_offset, leader_epoch, log_append_time_ms)
            if log_append_time_ms != NO_TIMESTAMP:
                attributes = header.attributes | LOG_APPEND_TIME_FLAG
                header = header._replace(attributes=attributes, max_timestamp=now_ms)
            placed.append((header, next_offset, leader_epoch, batch))
            if header.max_timestamp > max_timestamp:
                max_timestamp = header.max_timestamp
            size += header.batch_length + LENGTH_END
            if len(records) == taken_bytes:
                break
            next_offset = Offset(next_offset + header.record_count)
            records = records[taken_bytes:]
        self._write(placed, chunks, size, max_timestamp, now_ms)
        return AppendInfo(
            base_offset,
            self.end_offset,
            log_append_time_ms,
            self.log_start_offset,
            False,
            max_timestamp,
        )

    def append_as_follower(self, records: memoryview, *, now_ms: int) -> AppendInfo:
        """Write what the leader sent as it is; a batch cut off at the end is left out.

        RefusedError(CORRUPT_MESSAGE) when a batch is damaged or its offsets go back: nothing of
        the records is written then.  An empty log takes a batch that its start lies within, for
        records may be deleted up to anywhere; the start stays.
        """
        self._check_online()
        base_offset = next_offset = self.end_offset
        is_empty = self._is_empty
        max_timestamp = NO_TIMESTAMP
        found: list[tuple[int, BatchHeader]] = []
        try:
            for at, header in batches_of_any_format(records):
                is_first = is_empty and not found and header.end_offset > next_offset
                is_back = header.base_offset < next_offset and not is_first
                if is_back or header.last_offset_delta < 0:
                    raise CorruptDataError(f"offset {header.base_offset} after {next_offset - 1}")
                if not is_crc_right(records, at, header):
                    raise CorruptDataError(f"CRC of the batch at offset {header.base_offset}")
                found.append((at, header))
                next_offset = header.end_offset
                max_timestamp = max(max_timestamp, header.max_timestamp)
        except CorruptDataError as error:
            raise RefusedError(ErrorCode.CORRUPT_MESSAGE, error.where) from None
        if found and found[0][1].base_offset < base_offset:
            self._begin_before_start(found[0][1].base_offset, now_ms)
        self._write_run(records, found, now_ms)
        if found:
            base_offset = found[0][1].base_offset
        return AppendInfo(
            base_offset,
            next_offset,
            NO_TIMESTAMP,
            self.log_start_offset,
            False,
            max_timestamp,
        )

    def _begin_before_start(self, base_offset: Offset, now_ms: int) -> None:
        """Have an empty log take a batch that its start lies within (KAFKA-6975)."""
        old = self._active
        if base_offset == old.base_offset:
            return
        self._generation += 1
        try:
            self._segments[0] = self._new_segment(base_offset, now_ms)
        except OSError as error:
            self._refuse(error)
        self._discard(old)
        self._check_online()

    async def write_back(self) -> None:
        """Have the disk write the active segment, once it has written what this asked for before.

        Nothing becomes durable by it; a flush that follows takes less long.
        """
        self._check_online()
        file = self._active.file
        try:
            await self._disk.write_back(file)
        except OSError as error:
            self._fail_disk(f"{file.path}: {error}")
            self._refuse(error)

    def begin_verification(
        self, producer_id: int, *, epoch: int, sequence: int, is_bumping: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Return the guard with which a transaction's first batch may be appended.

        None where the transaction is open here already.  Raises RefusedError if the epoch is old.
        """
        self._check_online()
        return self._producers.begin_verification(
            producer_id, epoch=epoch, sequence=sequence, is_bumping=is_bumping, now_ms=now_ms
        )

    def assign_epoch(self, epoch: Epoch, start_offset: Offset) -> None:
        """Note that a leadership begins at an offset (as a new leader does before it writes)."""
        self._epochs.assign(epoch, start_offset)

    def _duplicate_of(
        self,
        batch: memoryview,
        header: BatchHeader,
        origin: AppendOrigin,
        guard: VerificationGuard | None,
        transaction_version: int,
    ) -> AppendInfo | None:
        """Return where the batch went when it was sent before; RefusedError if out of order."""
        is_control = header.attributes & CONTROL_FLAG
        marker = end_marker_of(batch, 0, header) if is_control else None
        first = self._producers.check(header, marker, origin, guard, transaction_version)
        if first is None:
            return None
        append_time_ms = first.timestamp_ms if self.config.is_log_append_time else NO_TIMESTAMP
        return AppendInfo(
            first.base_offset,
            Offset(first.last_offset + 1),
            append_time_ms,
            self.log_start_offset,
            True,
            first.timestamp_ms,
        )

    def _write_run(
        self, records: memoryview, found: list[tuple[int, BatchHeader]], now_ms: int
    ) -> None:
        """Write batches that already have their offsets, in as few writes as segments allow."""
        run: list[Placed] = []
        run_bytes = 0
        run_timestamp = NO_TIMESTAMP
        for at, header in found:
            batch = records[at : at + header.size_bytes]
            room_bytes = self.config.segment_bytes - run_bytes
            if (
                run
                and self._active.should_roll(
                    self.config,
                    run_bytes + len(batch),
                    max(run_timestamp, header.max_timestamp),
                    header.last_offset,
                    now_ms,
                )
            ) or len(batch) > room_bytes:
                self._write(run, [placed[3] for placed in run], run_bytes, run_timestamp, now_ms)
                run, run_bytes, run_timestamp = [], 0, NO_TIMESTAMP
            run.append((header, header.base_offset, header.partition_leader_epoch, batch))
            run_bytes += len(batch)
            run_timestamp = max(run_timestamp, header.max_timestamp)
        self._write(run, [placed[3] for placed in run], run_bytes, run_timestamp, now_ms)

    def _write(
        self,
        placed: list[Placed],
        chunks: list[Chunk],
        size: int,
        max_timestamp: int,
        now_ms: int,
    ) -> None:
        """Write batches of this size with one call, and count them; after a failure, none."""
        if not placed:
            return
        config = self.config
        if size > config.segment_bytes:
            raise RefusedError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes of batches exceed the segment size {config.segment_bytes}",
            )
        last_header, last_base, _, _ = placed[-1]
        last_offset = last_base + last_header.last_offset_delta
        segment = self._segments[-1]
        if segment.should_roll(config, size, max_timestamp, last_offset, now_ms) and (
            not self.names.is_new or segment.has_no_room(size=size, last_offset=last_offset)
        ):
            segment = self._roll(self.base_of_next(placed[0][1], last_offset), now_ms)
        try:
            segment.file.pwrite(segment.size_bytes, chunks)
        except OSError as error:
            self._take_back(segment, error)
        is_indexed = False
        epochs = self._epochs
        for header, base_offset, leader_epoch, batch in placed:
            if segment.note_batch(
                base_offset,
                base_offset + header.last_offset_delta,
                header.max_timestamp,
                header.batch_length + LENGTH_END,
                config.index_interval_bytes,
            ):
                is_indexed = True
            if leader_epoch > epochs.latest:
                epochs.assign(leader_epoch, base_offset)
            if header.producer_id >= 0:
                self._note_produced(segment, header, base_offset, batch, now_ms)
        # A call of Offset costs as much as should_roll.
        self.end_offset = last_offset + 1  # type: ignore[assignment]  # an Offset all the same
        if self.unflushed_since_ms is None:
            self.unflushed_since_ms = now_ms
        if is_indexed:
            self._write_indexes(segment)

    def _note_produced(
        self,
        segment: Segment,
        header: BatchHeader,
        base_offset: Offset,
        batch: memoryview,
        now_ms: int,
    ) -> None:
        """Follow a written batch of a producer in its state and in the transaction index."""
        is_control = header.attributes & CONTROL_FLAG
        marker = end_marker_of(batch, 0, header) if is_control else None
        completed = self._producers.apply(header, base_offset, marker, now_ms)
        if completed is not None and completed.is_aborted:
            stable = self._producers.last_stable_offset_after(completed)
            try:
                segment.note_aborted(AbortedTransaction(*completed[:3], stable))
            except OSError as error:
                self._fail_by(error, segment.transaction_index.path)

    # --- cleaning ---

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, oldest first; the last one is active."""
        return tuple(self._segments)

    @property
    def is_being_changed(self) -> bool:
        """Whether a truncation or a removal of segments is under way."""
        return self._is_cutting or self._is_removing or bool(self._leaving)

    def note_clean_to(self, offset: Offset) -> None:
        """Take an offset for the first dirty one, if the log has it; else all of it is dirty."""
        is_here = self.log_start_offset <= offset <= self.end_offset
        self.first_dirty_offset = offset if is_here else self.log_start_offset

    @file_task
    async def replace_segments(self, cleaned: CleanedFiles) -> None:
        """Put a cleaned segment in the place of those that it was made from, durably.

        What reads the old ones goes on with them.  After a crash there are the old ones or the new.

        Raises CorruptDataError if the new files are not what `cleaned` says, RefusedError if the
        old segments are not there or the disk fails; then the old ones stay.
        """
        self._check_online()
        assert self.is_being_cleaned
        olds = self._sources_of(cleaned)
        base_offset = cleaned.base_offset
        try:
            new = await open_cleaned(
                self._disk, self.directory, cleaned, self.config, now_ms=olds[0].created_ms
            )
            try:
                ends = [await end_offset_of(self._disk, each) for each in (olds[-1], new)]
                if ends[0] != ends[1]:
                    raise CorruptDataError(f"{new.file.path} ends at {ends[1]}, not at {ends[0]}")
                self._check_online()
                await decide_swap(self._disk, self.directory, base_offset)
                self._take_in_place_of(olds, new)
            finally:
                if new not in self._segments:
                    new.close()
            for old in olds:  # the oldest first: what is left of them hides no later tombstone
                await self._set_aside(old)
                self._check_online()
            await finish_swap(self._disk, self.directory, base_offset)
            await self._producer_files.keep_digests(self._segments, is_cleaned=True)
            for old in olds[1:]:
                await self._producer_files.remove(old.base_offset)
        except OSError as error:
            if is_swap_decided(self._disk, self.directory, base_offset):
                self._fail_by(error, self.directory)  # only a start knows what the disk has now
            self._refuse(error)

    def _sources_of(self, cleaned: CleanedFiles) -> list[Segment]:
        """Return the segments that are to be replaced, which follow each other.

        Raises RefusedError if they are not all there, closed and flushed.
        """
        first = self._segment_index(Offset(cleaned.base_offset))
        found = self._segments[first : first + len(cleaned.sources)]
        is_there = cleaned.sources == tuple(each.base_offset for each in found)
        if not is_there or cleaned.base_offset != found[0].base_offset or self._active in found:
            raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "what was cleaned is gone")
        if not all(each.is_sealed for each in found):
            raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "what was cleaned is not flushed")
        return found

    def _take_in_place_of(self, olds: list[Segment], new: Segment) -> None:
        """Read from a new segment what was read from old ones until now."""
        self._check_online()
        at = self._segments.index(olds[0])
        assert self._segments[at : at + len(olds)] == olds
        self._segments[at : at + len(olds)] = [new]
        self._generation += 1
        new.take_own_names()

    # --- in time ---

    def report_future_timestamps(self, now_ms: int) -> int | None:
        """Return the timestamp, ahead of our clock, that keeps the oldest segment; once a segment.

        None where retention by time is off or nothing of it lies ahead: clocks differ by less.
        """
        oldest = self._segments[0]
        config = self.config
        is_kept_by_time = config.is_deleted_by_retention and config.retention_ms >= 0
        is_ahead = oldest.max_timestamp_ms > now_ms + CLOCK_DIFFERENCE_MS_MAX
        if not is_kept_by_time or not is_ahead or oldest.is_future_reported:
            return None
        oldest.is_future_reported = True
        return oldest.max_timestamp_ms

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were not seen for producer.id.expiration.ms of wall time."""
        return self._producers.expire(now_ms, self.config.producer_id_expiration_ms)
