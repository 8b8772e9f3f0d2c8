"""One partition's log on disk: leader and follower appends, reads as file slices, watermarks.

One writer, on the loop.  Every plain method runs without awaiting, so nothing comes between a
check and its write; what may take long (fsync, truncation, removal) is awaited, and the caller
appends nothing while it truncates.  A batch's bytes are never copied and its records never looked
at, but for the topics that demand it.

Invariants: OffsetsInOrder (log start <= last stable <= high watermark <= end),
WatermarkNeverRecedes (but by truncation), RecoveryPointIsFlushed, and NoTornAppend: a write that
fails is taken back before it is answered; where that fails too, the log goes offline.
"""

import errno
from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple, NoReturn
from uuid import UUID

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import NO_EPOCH, Epoch, Offset, OffsetAndEpoch
from ottla.model.seams import Rng
from ottla.storage.append_info import AppendInfo, AppendOrigin
from ottla.storage.disk_seam import Chunk, Disk
from ottla.storage.files import LEADER_EPOCH_CHECKPOINT, SNAPSHOT, file_name, offsets_of
from ottla.storage.log_config import LogConfig
from ottla.storage.producer_snapshot import encode_snapshot
from ottla.storage.producer_state import ProducerStates
from ottla.storage.recovery import (
    LoadedLog,
    LogLoader,
    Progress,
    end_marker_of,
    load_producers,
    load_topic_id,
)
from ottla.storage.retention import deletable_count
from ottla.storage.segment import Segment
from ottla.storage.slice import FileSlice
from ottla.storage.timestamp_lookup import (
    TimestampedOffset,
    first_at_or_after,
    with_largest_timestamp,
)
from ottla.storage.transaction_index import AbortedTransaction
from ottla.storage.validate import check_header, check_records, first_header, gathered, recoded
from ottla.wire.batch import (
    LENGTH_END,
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    BatchHeader,
    batches,
    check_crc,
)

FULL_DISK_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""A write may succeed again after these, once there is room; after any other the log is offline."""


Placed = tuple[BatchHeader, Offset, memoryview]
"""A batch about to be written: its header, the offset it gets, its bytes."""


class LogRead(NamedTuple):
    """Bytes from the start of the batch that holds the offset; no slice when none are due."""

    slice: FileSlice | None
    base_offset: Offset
    """Base offset of the first batch of the slice; the asked offset where there is no slice."""


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
) -> "Log":
    """Open a partition's directory, which is made when it is not there, and recover its log.

    `is_clean` says that the log was closed by `close`; else all from `recovery_point` on is
    checked.  RefusedError(INCONSISTENT_TOPIC_ID) when the directory belongs to another topic.
    """
    await disk.makedirs(directory)
    topic_id = await load_topic_id(disk, directory, topic_id)
    loader = LogLoader(disk, directory, config, now_ms=now_ms, progress=progress)
    loaded = await loader.load(
        is_clean=is_clean, recovery_point=recovery_point, log_start_offset=log_start_offset
    )
    return Log(disk, directory, config, topic_id, loaded, rng)


class Log:
    """One partition's records, on disk.  One writer; every plain method runs without awaiting."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        topic_id: UUID | None,
        loaded: LoadedLog,
        rng: Rng | None,
    ) -> None:
        self.config = config
        self.on_roll: Callable[[Log], None] = lambda log: None
        """Called after each roll; the manager then flushes up to `unflushed_roll_offset`."""
        self.directory = directory
        self.topic_id = topic_id
        self.failure: str | None = None
        """Why the log is offline; None while it serves."""
        self.unflushed_since_ms: int | None = None
        """When the oldest unflushed append was made, for flush.ms."""
        self.log_start_offset = loaded.log_start_offset
        self.end_offset = loaded.end_offset
        self.high_watermark = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        self._disk = disk
        self._rng = rng
        self._segments = loaded.segments
        self._epochs = loaded.epochs
        self._written_epoch_change = 0
        self._producers = loaded.producers
        self._unsealed = [segment for segment in loaded.segments[:-1] if not segment.is_sealed]
        self._unsynced_snapshots: list[str] = []
        self._is_directory_synced = False
        self._generation = 0
        """Counts truncations and removals, so that a flush under way notices them."""
        self._active.jitter_ms = self._next_jitter_ms()

    # --- what it holds ---

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    @property
    def last_epoch(self) -> Epoch:
        """Return the newest leader epoch, -1 for none."""
        return self._epochs.latest

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all segments, without indexes."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_count(self) -> int:
        """Return how many segments there are; at least one."""
        return len(self._segments)

    @property
    def last_stable_offset(self) -> Offset:
        """Return the end of what READ_COMMITTED may see."""
        first_unstable = self._producers.first_unstable_offset
        if first_unstable is None or first_unstable >= self.high_watermark:
            return self.high_watermark
        return max(first_unstable, self.log_start_offset)

    @property
    def is_flush_due(self) -> bool:
        """Say whether flush.messages records wait for a flush."""
        return self.end_offset - self.recovery_point >= self.config.flush_messages

    @property
    def unflushed_roll_offset(self) -> Offset | None:
        """Return up to where closed segments wait for their flush; None when none does."""
        return self._active.base_offset if self._unsealed else None

    def update_high_watermark(self, offset: Offset) -> bool:
        """Move the high watermark forward, at most to the end; say whether it moved."""
        offset = min(offset, self.end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self._producers.on_high_watermark(offset)
        return True

    # --- appending ---

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: Epoch,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Check, give offsets and write; RefusedError with Kafka's code when it cannot be.

        A client's append is one batch; raft and coordinators may append several, as one write.
        """
        self._check_online()
        config = self.config
        log_append_time_ms = now_ms if config.is_log_append_time else NO_TIMESTAMP
        base_offset = next_offset = self.end_offset
        max_timestamp = NO_TIMESTAMP
        placed: list[Placed] = []
        chunks: list[Chunk] = []
        while True:
            header, batch, taken_bytes = self._accepted(records, origin, now_ms)
            if header.producer_id >= 0:
                duplicate = self._duplicate_of(batch, header, origin)
                if duplicate is not None:
                    return duplicate
            chunks += gathered(
                batch,
                header,
                base_offset=next_offset,
                leader_epoch=leader_epoch,
                log_append_time_ms=log_append_time_ms,
            )
            if config.is_log_append_time:
                attributes = header.attributes | LOG_APPEND_TIME_FLAG
                header = header._replace(attributes=attributes, max_timestamp=now_ms)
            placed.append((header, next_offset, batch))
            max_timestamp = max(max_timestamp, header.max_timestamp)
            next_offset = Offset(next_offset + header.record_count)
            if len(records) == taken_bytes:
                break
            records = records[taken_bytes:]
        self._write(placed, chunks, max_timestamp, now_ms)
        if leader_epoch > self._epochs.latest:
            self._epochs.assign(leader_epoch, base_offset)
        return AppendInfo(
            base_offset,
            Offset(next_offset - 1),
            log_append_time_ms,
            self.log_start_offset,
            False,
            max_timestamp,
        )

    def append_as_follower(self, records: memoryview, *, now_ms: int) -> AppendInfo:
        """Write what the leader sent as it is; a batch cut off at the end is left out.

        RefusedError(CORRUPT_MESSAGE) when a batch is damaged or its offsets go back: nothing of
        the records is written then.
        """
        self._check_online()
        base_offset = next_offset = self.end_offset
        max_timestamp = NO_TIMESTAMP
        found: list[tuple[int, BatchHeader]] = []
        try:
            for at, header in batches(records, is_partial_end_allowed=True):
                if header.base_offset < next_offset or header.last_offset_delta < 0:
                    raise CorruptDataError(f"offset {header.base_offset} after {next_offset - 1}")
                if not check_crc(records, at, header):
                    raise CorruptDataError(f"CRC of the batch at offset {header.base_offset}")
                found.append((at, header))
                next_offset = header.end_offset
                max_timestamp = max(max_timestamp, header.max_timestamp)
        except CorruptDataError as error:
            raise RefusedError(ErrorCode.CORRUPT_MESSAGE, error.where) from None
        self._write_run(records, found, now_ms)
        if found:
            base_offset = found[0][1].base_offset
        return AppendInfo(
            base_offset,
            Offset(next_offset - 1),
            NO_TIMESTAMP,
            self.log_start_offset,
            False,
            max_timestamp,
        )

    def assign_epoch(self, epoch: Epoch, start_offset: Offset) -> None:
        """Note that a leadership begins at an offset (as a new leader does before it writes)."""
        self._epochs.assign(epoch, start_offset)

    def _accepted(
        self, records: memoryview, origin: AppendOrigin, now_ms: int
    ) -> tuple[BatchHeader, memoryview, int]:
        """Return the first batch, checked and in the topic's codec, and the bytes it took."""
        config = self.config
        header = first_header(records, origin, config)
        check_header(header, config, origin, now_ms=now_ms)
        taken_bytes = header.batch_length + LENGTH_END
        if config.codec is not None and config.codec != header.codec and not header.is_control:
            check_records(records, header, config, now_ms=now_ms)
            records = recoded(records, header, config.codec)
            header = first_header(records, origin, config)
        elif config.is_full_validation:
            check_records(records, header, config, now_ms=now_ms)
        return header, records, taken_bytes

    def _duplicate_of(
        self, batch: memoryview, header: BatchHeader, origin: AppendOrigin
    ) -> AppendInfo | None:
        """Return where the batch went when it was sent before; RefusedError if out of order."""
        marker = end_marker_of(batch, 0, header)
        first = self._producers.check(header, marker, origin)
        if first is None:
            return None
        append_time_ms = first.timestamp_ms if self.config.is_log_append_time else NO_TIMESTAMP
        return AppendInfo(
            first.base_offset,
            first.last_offset,
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
                    size=run_bytes + len(batch),
                    max_timestamp=max(run_timestamp, header.max_timestamp),
                    last_offset=header.last_offset,
                    now_ms=now_ms,
                )
            ) or len(batch) > room_bytes:
                self._write(run, [b for _, _, b in run], run_timestamp, now_ms)
                run, run_bytes, run_timestamp = [], 0, NO_TIMESTAMP
            run.append((header, header.base_offset, batch))
            run_bytes += len(batch)
            run_timestamp = max(run_timestamp, header.max_timestamp)
        self._write(run, [b for _, _, b in run], run_timestamp, now_ms)

    def _write(
        self, placed: list[Placed], chunks: list[Chunk], max_timestamp: int, now_ms: int
    ) -> None:
        """Write batches with one call, and count them; all or, after a failure, none."""
        if not placed:
            return
        config = self.config
        size = 0
        for chunk in chunks:
            size += len(chunk)
        if size > config.segment_bytes:
            raise RefusedError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes of batches exceed the segment size {config.segment_bytes}",
            )
        last_header, last_base, _ = placed[-1]
        last_offset = last_base + last_header.last_offset_delta
        segment = self._active
        if segment.should_roll(
            config, size=size, max_timestamp=max_timestamp, last_offset=last_offset, now_ms=now_ms
        ):
            segment = self._roll(placed[0][1], now_ms)
        try:
            segment.write(chunks)
        except OSError as error:
            self._take_back(segment, error)
        is_indexed = False
        for header, base_offset, batch in placed:
            is_indexed |= segment.note_batch(
                base_offset=base_offset,
                last_offset=base_offset + header.last_offset_delta,
                max_timestamp=header.max_timestamp,
                size=header.batch_length + LENGTH_END,
                interval_bytes=config.index_interval_bytes,
            )
            self._note_stored(segment, header, base_offset, batch)
        self.end_offset = Offset(last_offset + 1)
        if self.unflushed_since_ms is None:
            self.unflushed_since_ms = now_ms
        if is_indexed:
            segment.write_indexes()

    def _note_stored(
        self, segment: Segment, header: BatchHeader, base_offset: Offset, batch: memoryview
    ) -> None:
        """Follow a written batch in the epochs, the producers and the transaction index."""
        if header.partition_leader_epoch > self._epochs.latest:
            self._epochs.assign(header.partition_leader_epoch, base_offset)
        if header.producer_id < 0:
            return
        marker = end_marker_of(batch, 0, header)
        completed = self._producers.apply(header, base_offset, marker)
        if completed is not None and completed.is_aborted:
            stable = self._producers.last_stable_offset_after(completed)
            try:
                segment.note_aborted(AbortedTransaction(*completed[:3], stable))
            except OSError as error:
                self._fail(f"{segment.transaction_index.path}: {error}")

    def _roll(self, base_offset: Offset, now_ms: int) -> Segment:
        """Begin a new segment; an empty active one of the same base begins anew (KAFKA-6388)."""
        old = self._active
        try:
            if base_offset == old.base_offset:
                old.begin(self.config)
                return old
            self._write_snapshot(base_offset)
            new = Segment(self._disk, self.directory, base_offset, self.config, now_ms=now_ms)
            new.begin(self.config)
        except OSError as error:
            self._refuse(error)
        new.jitter_ms = self._next_jitter_ms()
        old.add_last_time_entry()
        old.write_indexes()
        self._segments.append(new)
        self._unsealed.append(old)
        self._is_directory_synced = False
        self.on_roll(self)
        return new

    def _write_snapshot(self, offset: Offset) -> None:
        path = f"{self.directory}/{file_name(offset, SNAPSHOT)}"
        file = self._disk.open(path, create=True)
        try:
            file.set_size(0)
            file.pwrite(0, [encode_snapshot(self._producers)])
        finally:
            file.close()
        self._unsynced_snapshots.append(path)

    def _next_jitter_ms(self) -> int:
        jitter_ms = self.config.segment_jitter_ms
        if not jitter_ms or self._rng is None:
            return 0
        return self._rng.below(min(jitter_ms, self.config.segment_ms))

    # --- failures ---

    def _check_online(self) -> None:
        if self.failure is not None:
            raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)

    def _take_back(self, segment: Segment, error: OSError) -> NoReturn:
        """Cut a failed append off again, so that the file ends with its last whole batch."""
        try:
            segment.file.set_size(segment.size_bytes)
        except OSError as second:
            self._fail(f"{segment.file.path}: {error}, and its tail stays: {second}")
        self._refuse(error)

    def _refuse(self, error: OSError) -> NoReturn:
        """Answer a disk's failure; but for a full disk it takes the log offline."""
        if error.errno not in FULL_DISK_ERRNOS:
            self._fail(f"{self.directory}: {error}")
        raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: {error}") from error

    def _fail(self, reason: str) -> None:
        if self.failure is None:
            self.failure = reason

    # --- reading ---

    def read(
        self, offset: Offset, *, bytes_max: int, end_offset: Offset, at_least_one: bool
    ) -> LogRead:
        """Return the batches from the one that holds `offset`, below `end_offset`, as a slice.

        The slice may cut its last batch off; with `at_least_one` the first batch is whole even
        when it is larger than `bytes_max`.  RefusedError(OFFSET_OUT_OF_RANGE) outside the log.
        """
        if self.failure is not None:
            self._check_online()
        if not self.log_start_offset <= offset <= self.end_offset:
            raise RefusedError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is outside [{self.log_start_offset}, {self.end_offset}]",
            )
        end_offset = min(end_offset, self.end_offset)
        if offset >= end_offset:
            return LogRead(None, offset)
        index = self._segment_index(offset)
        while index < len(self._segments):
            segment = self._segments[index]
            found = segment.find(offset)
            if found is not None:
                return self._slice(index, found, bytes_max, end_offset, at_least_one)
            index += 1  # compaction emptied the rest of this segment
        return LogRead(None, offset)

    def _slice(
        self,
        index: int,
        found: tuple[int, int, int],
        bytes_max: int,
        end_offset: Offset,
        at_least_one: bool,
    ) -> LogRead:
        segment = self._segments[index]
        position, base_offset, first_bytes = found
        limit = segment.size_bytes
        is_last = index + 1 == len(self._segments)
        segment_end = self.end_offset if is_last else self._segments[index + 1].base_offset
        if end_offset < segment_end:
            bound = segment.find(end_offset)
            if bound is not None:
                limit = bound[0]
        if first_bytes > bytes_max:
            bytes_max = first_bytes if at_least_one else 0
        length = min(limit - position, bytes_max)
        if length <= 0:
            return LogRead(None, Offset(base_offset))
        return LogRead(FileSlice(segment.file, position, length), Offset(base_offset))

    def _segment_index(self, offset: Offset) -> int:
        """Return the index of the segment whose range an offset is in."""
        segments = self._segments
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        found = bisect_right(segments, offset, key=lambda segment: segment.base_offset)
        return max(0, found - 1)

    def aborted_transactions(self, offset: Offset, end_offset: Offset) -> list[tuple[int, Offset]]:
        """Return (producer id, first offset) of each aborted transaction that meets the range."""
        found: list[AbortedTransaction] = []
        for segment in self._segments[self._segment_index(offset) :]:
            if segment.transaction_index.collect(offset, end_offset, found):
                break
        return [(aborted.producer_id, aborted.first_offset) for aborted in found]

    def end_offset_for_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """Return the largest epoch up to the asked one and where it ends; (-1, -1) if unknown."""
        return self._epochs.end_offset_for(epoch, self.end_offset)

    def epoch_of(self, offset: Offset) -> Epoch:
        """Return the epoch an offset was written in, -1 if unknown."""
        return self._epochs.epoch_of(offset) if offset < self.end_offset else NO_EPOCH

    async def offset_for_timestamp(
        self, timestamp_ms: int, end_offset: Offset
    ) -> TimestampedOffset | None:
        """Return the first record below `end_offset` with at least that timestamp."""
        return await first_at_or_after(
            self._disk,
            tuple(self._segments),
            timestamp_ms,
            start_offset=self.log_start_offset,
            end_offset=end_offset,
        )

    async def max_timestamp_offset(self, end_offset: Offset) -> TimestampedOffset | None:
        """Return the record with the largest timestamp (ListOffsets -3)."""
        return await with_largest_timestamp(
            self._disk,
            tuple(self._segments),
            start_offset=self.log_start_offset,
            end_offset=end_offset,
        )

    # --- making durable ---

    async def flush(self, up_to: Offset | None = None) -> Offset:
        """Make everything below `up_to` (default: the end) durable; return the recovery point."""
        self._check_online()
        end = self.end_offset if up_to is None else min(up_to, self.end_offset)
        since_ms = self.unflushed_since_ms
        if end == self.end_offset:
            self.unflushed_since_ms = None
        try:
            while self.recovery_point < end or self._unsealed:
                generation = self._generation
                await self._flush_segments(end, generation)
                if generation == self._generation:
                    self.recovery_point = max(self.recovery_point, end)
                    break
                end = min(end, self.end_offset)
        except OSError as error:
            self.unflushed_since_ms = since_ms
            self._refuse(error)
        return self.recovery_point

    async def _flush_segments(self, end: Offset, generation: int) -> None:
        """Flush what lies in `[recovery point, end)`, and what recovery would need to know of it.

        It stops where a truncation or removal came between; the caller then begins again.
        """
        first = self._segment_index(self.recovery_point)
        if self.recovery_point < end:
            for segment in self._segments[first:]:
                if segment.base_offset >= end:
                    break
                await self._disk.fsync(segment.file)
                await segment.transaction_index.flush()
                if generation != self._generation:
                    return
        for segment in list(self._unsealed):
            if segment.base_offset >= end or segment is self._active:
                continue
            await self._disk.fsync(segment.file)
            await segment.trim()
            if generation != self._generation:
                return
            segment.seal()
            if segment in self._unsealed:
                self._unsealed.remove(segment)
        await self._flush_derived()

    async def _flush_derived(self) -> None:
        """Make the epochs, new snapshots and new file names durable."""
        snapshots, self._unsynced_snapshots = self._unsynced_snapshots, []
        for path in snapshots:
            if self._disk.exists(path):
                file = self._disk.open(path)
                try:
                    await self._disk.fsync(file)
                finally:
                    file.close()
        await self._write_epochs()
        if not self._is_directory_synced:
            self._is_directory_synced = True
            await self._disk.fsync_directory(self.directory)

    async def _write_epochs(self) -> None:
        change_count = self._epochs.change_count
        if change_count != self._written_epoch_change:
            path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
            await self._disk.write_atomically(path, self._epochs.encode())
            self._written_epoch_change = change_count

    async def roll(self, *, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty, and flush the closed one."""
        self._check_online()
        if self._active.size_bytes:
            await self.flush(self._roll(self.end_offset, now_ms).base_offset)

    # --- removing ---

    async def truncate_to(self, offset: Offset) -> bool:
        """Remove all from `offset` on; say whether anything was removed."""
        self._check_online()
        if offset >= self.end_offset:
            return False
        if offset < self._segments[0].base_offset:
            await self.truncate_fully_and_start_at(offset)
            return True
        self._generation += 1
        kept = self._segment_index(offset) + 1
        removed = self._segments[kept:]
        del self._segments[kept:]
        active = self._active
        self._unsealed = [s for s in self._unsealed if s not in removed and s is not active]
        try:
            active.activate(self.config)
            place = active.find(offset)
            position = active.size_bytes if place is None else place[0]
            active.cut(position=position, end_offset=offset)
            self.end_offset = offset
            self.high_watermark = min(self.high_watermark, offset)
            self.recovery_point = min(self.recovery_point, offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            self._epochs.truncate_from_end(offset)
            for segment in reversed(removed):
                await segment.remove()
            await self._disk.truncate(active.file, position)
            await self._write_epochs()
            await self._reload_producers()
        except OSError as error:
            self._fail(f"{self.directory}: {error}")  # half cut: nothing may be written after it
            self._refuse(error)
        return True

    async def _reload_producers(self) -> None:
        """Bring the producers back to what they were at the end offset."""
        await self._remove_snapshots(above=self.end_offset)
        self._producers = await load_producers(
            self._disk, self.directory, self._segments, self.end_offset, self.config, now_ms=0
        )
        self._producers.on_high_watermark(self.high_watermark)

    async def _remove_snapshots(self, *, above: Offset) -> None:
        for offset in offsets_of(await self._disk.listdir(self.directory), SNAPSHOT):
            if offset > above:
                await self._disk.unlink(f"{self.directory}/{file_name(offset, SNAPSHOT)}")

    async def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Remove everything; the log is empty and begins and ends at `offset`."""
        self._check_online()
        self._generation += 1
        self.log_start_offset = self.end_offset = self.high_watermark = offset
        self.recovery_point = offset
        self._epochs.clear()
        self._unsealed.clear()
        try:
            for segment in reversed(self._segments):
                await segment.remove()
            await self._remove_snapshots(above=Offset(-1))
            new = Segment(self._disk, self.directory, offset, self.config, now_ms=0)
            new.begin(self.config)
            self._segments[:] = [new]
            self._producers = ProducerStates(offset)
            self._is_directory_synced = False
            await self._write_epochs()
        except OSError as error:
            self._fail(f"{self.directory}: {error}")
            self._refuse(error)

    async def delete_records_before(self, offset: Offset) -> None:
        """Raise the log start; OFFSET_OUT_OF_RANGE beyond the high watermark."""
        self._check_online()
        if offset > self.high_watermark:
            raise RefusedError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot delete up to {offset}: the high watermark is {self.high_watermark}",
            )
        if offset > self.log_start_offset:
            self._raise_log_start(offset)
            passed = 0
            while (
                passed + 1 < len(self._segments)
                and self._segments[passed + 1].base_offset <= offset
            ):
                passed += 1
            await self._remove_oldest(passed)

    def _raise_log_start(self, offset: Offset) -> None:
        self.log_start_offset = max(self.log_start_offset, offset)
        self.recovery_point = max(self.recovery_point, self.log_start_offset)
        self._epochs.truncate_from_start(self.log_start_offset)
        self._producers.on_log_start(self.log_start_offset)

    async def delete_old_segments(self, now_ms: int) -> int:
        """Remove segments that retention or the log start no longer keeps; return how many."""
        self._check_online()
        count = deletable_count(
            self._segments,
            self.config,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            end_offset=self.end_offset,
            now_ms=now_ms,
        )
        if count == len(self._segments):
            self._roll(self.end_offset, now_ms)
        if count:
            self._raise_log_start(self._segments[count].base_offset)
        await self._remove_oldest(count)
        return count

    async def _remove_oldest(self, count: int) -> None:
        if not count:
            return
        self._generation += 1
        removed = self._segments[:count]
        del self._segments[:count]
        self._unsealed = [segment for segment in self._unsealed if segment not in removed]
        try:
            for segment in removed:
                await segment.remove()
                snapshot = f"{self.directory}/{file_name(segment.base_offset, SNAPSHOT)}"
                if self._disk.exists(snapshot):
                    await self._disk.unlink(snapshot)
        except OSError as error:
            self._refuse(error)

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that have not written for producer.id.expiration.ms."""
        return self._producers.expire(now_ms, self.config.producer_id_expiration_ms)

    # --- ending ---

    async def close(self) -> None:
        """Flush, trim the indexes, write the producer snapshot: what a clean marker promises."""
        await self.flush()
        try:
            self._active.add_last_time_entry()
            await self._active.trim()
            path = f"{self.directory}/{file_name(self.end_offset, SNAPSHOT)}"
            await self._disk.write_atomically(path, encode_snapshot(self._producers))
            await self._write_epochs()
        except OSError as error:
            self._refuse(error)
        self.abandon()

    def abandon(self) -> None:
        """Let go of the files as they are, before the directory is removed or after a failure."""
        self._fail("the log is closed")
        for segment in self._segments:
            segment.close()
