"""A log's segments on disk and the offsets that bound them: rolling, flushing, cutting, removing.

What may take long is awaited; a flush that a truncation or removal overtakes begins again.  The
caller appends nothing while it truncates.  Invariants: RecoveryPointIsFlushed (all below it is
durable, and so is what recovery needs to know of it), ActiveIsLast, and a log that could neither
write nor take back what it wrote is offline, with its reason.
"""

from bisect import bisect_right
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn
from uuid import UUID

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.model.seams import Rng
from ottla.storage.directory_view import DirectoryView
from ottla.storage.disk_errors import is_disk_failure, is_unopened
from ottla.storage.disk_seam import Disk, when_cached
from ottla.storage.epoch_file import EpochFile
from ottla.storage.file_tasks import FileTasks, file_task
from ottla.storage.log_config import LogConfig
from ottla.storage.log_failures import LogFailures
from ottla.storage.log_names import LogNames
from ottla.storage.producer_files import ProducerFiles
from ottla.storage.producer_state import ProducerStates
from ottla.storage.recovery import LoadedLog, load_producers
from ottla.storage.retention import deletable_count
from ottla.storage.segment import SEGMENT_OFFSETS_MAX, Segment


async def _told_nobody(*told: object) -> None:
    """Do nothing: whoever opened the log keeps no checkpoint of it, and never cleans it."""


class LocalLog(LogFailures):
    """The segments of one partition; `Log` adds what is checked and who may read what."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        topic_id: UUID | None,
        loaded: LoadedLog,
        rng: Rng | None,
    ) -> None:
        super().__init__(directory)
        self.config = config
        self.on_roll: Callable[[LocalLog], None] = lambda log: None
        """Called after each roll; the manager flushes up to `unflushed_roll_offset`."""
        self.on_recede: Callable[[LocalLog], Awaitable[None]] = _told_nobody
        """Awaited when a truncation took the recovery point or the high watermark back, before
        anything is appended: the manager writes the checkpoints, which a start holds it to."""
        self.on_log_start_raised: Callable[[LocalLog], Awaitable[None]] = _told_nobody
        """Awaited when records were deleted, before that is answered: the manager writes its
        checkpoint, lest they are there again after a kill."""
        self.remove_later: Callable[[list[str], int], None] | None = None
        """Called with files that were set aside and the ms that they stay; else they go at once."""
        self.on_cut: Callable[[Offset], None] = lambda offset: None
        """Called as soon as all from an offset on is gone, so that a copy of the log follows."""
        self.before_cut: Callable[[LocalLog, Offset], Awaitable[None]] = _told_nobody
        """Awaited before all from an offset on is cut off: a cleaning of the log ends."""
        self.after_cut: Callable[[LocalLog], None] = lambda log: None
        """Called after that: the log may be cleaned again."""
        self.is_being_cleaned = False
        """Segments are being rewritten: none is removed until that has ended."""
        self.first_dirty_offset = loaded.log_start_offset
        """Everything below was compacted."""
        self.file_tasks = FileTasks()
        self.topic_id = topic_id
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
        self._epoch_file = EpochFile(disk, directory, loaded.epochs_data)
        self._producers = loaded.producers
        self._unsealed = [segment for segment in loaded.segments[:-1] if not segment.is_sealed]
        self._is_cutting = False
        """A truncation is under way: what it forgets may still come back with a crash."""
        self._producer_files = ProducerFiles(disk, directory, loaded.snapshots)
        self._leaving: list[Segment] = []
        """The oldest segments, which are not the log's any more but still lie there."""
        self._is_removing = False
        self.names = LogNames(disk, directory, topic_id)
        self._generation = 0
        """Counts truncations and removals, so that a flush under way notices them."""
        self._active.jitter_ms = self._next_jitter_ms()

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    @property
    def _is_empty(self) -> bool:
        return len(self._segments) == 1 and not self._active.size_bytes

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all segments, without indexes."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_count(self) -> int:
        """Return how many segments there are; at least one."""
        return len(self._segments)

    @property
    def is_flush_due(self) -> bool:
        """Whether flush.messages records wait for a flush."""
        return self.end_offset - self.recovery_point >= self.config.flush_messages

    @property
    def recovery_checkpoint(self) -> Offset:
        """Return from where the next start has to check: no segment before it is unsealed.

        The recovery point may be higher, for it says nothing of indexes: those of a segment are
        flushed as it is sealed.  To a start, which checks whole segments, that is all the same.
        """
        unsealed = next((each for each in self._leaving if not each.is_sealed), None)
        if unsealed is None:
            unsealed = self._unsealed[0] if self._unsealed else self._active
        return min(self.recovery_point, unsealed.base_offset)

    @property
    def unflushed_roll_offset(self) -> Offset | None:
        """Return up to where closed segments wait for their flush; None when none does."""
        return self._active.base_offset if self._unsealed else None

    def _segment_index(self, offset: Offset) -> int:
        """Return the index of the segment whose range an offset is in."""
        segments = self._segments
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        found = bisect_right(segments, offset, key=lambda segment: segment.base_offset)
        return max(0, found - 1)

    def base_of_next(self, first_offset: Offset, last_offset: int) -> Offset:
        """Return where a segment for these batches begins: where the log ends, gap or not.

        So a start knows a lost tail by the gap it leaves.  A compacted leader's gap may be wider
        than a segment: then it begins with its first batch.
        """
        fits = last_offset - self.end_offset < SEGMENT_OFFSETS_MAX
        return self.end_offset if fits else first_offset

    def _roll(self, base_offset: Offset, now_ms: int) -> Segment:
        """Begin a new segment; an empty active one of the same base begins again (KAFKA-6388)."""
        old = self._active
        try:
            if base_offset == old.base_offset:
                old.begin(self.config)
                return old
            self._producer_files.write(self._producers, base_offset)
            old.end_preallocation()
            new = self._new_segment(base_offset, now_ms)
        except OSError as error:
            self._refuse(error)
        new.jitter_ms = self._next_jitter_ms()
        old.add_last_time_entry()
        self._segments.append(new)
        self._unsealed.append(old)
        self._write_indexes(old)
        self.on_roll(self)
        return new

    def _write_indexes(self, segment: Segment) -> None:
        """Bring index entries to their files; a full disk only delays them."""
        try:
            segment.write_indexes()
        except OSError as error:
            self._refuse(error)

    def _new_segment(self, base_offset: Offset, now_ms: int) -> Segment:
        """Make a segment's files, all or none: a start takes what is there for the log's end."""
        self.names.change_count += 1
        new = Segment(self._disk, self.directory, base_offset, self.config, now_ms=now_ms)
        try:
            new.begin(self.config)
        except OSError:
            self._discard(new)
            raise
        return new

    def _discard(self, segment: Segment) -> None:
        """Remove an empty segment's files at once; where one stays the log must not go on."""
        try:
            segment.discard()
        except OSError as error:
            self._fail_by(error, f"{segment.file.path} is no segment's, and stays")

    def _next_jitter_ms(self) -> int:
        jitter_ms = self.config.segment_jitter_ms
        if not jitter_ms or self._rng is None:
            return 0
        return self._rng.below(min(jitter_ms, self.config.segment_ms))

    def _take_back(self, segment: Segment, error: OSError) -> NoReturn:
        """Cut a failed append off again, so that the file ends with its last whole batch."""
        try:
            segment.file.set_size(segment.size_bytes)
        except OSError as second:
            if is_unopened(second):
                self._refuse(error)  # nothing was written: a file that was is open
            self._fail_by(second, f"{segment.file.path}: {error}, and its tail stays")
        self._refuse(error)

    # --- making durable ---

    @file_task
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
                self._check_online()  # files that were closed meanwhile are not flushed
                if generation != self._generation:
                    end = min(end, self.end_offset)
                elif not self._is_sealing_due(end):
                    self.recovery_point = max(self.recovery_point, end)
                    break
        except OSError as error:
            self.unflushed_since_ms = since_ms
            self._refuse(error)
        return self.recovery_point

    def _is_sealing_due(self, end: Offset) -> bool:
        """Return whether a segment below `end` was closed meanwhile, and is not sealed yet."""
        return any(each.base_offset < end for each in self._unsealed)

    async def _flush_segments(self, end: Offset, generation: int) -> None:
        """Flush what lies in `[recovery point, end)`, and what recovery would need to know of it.

        It stops where a truncation or removal came between; the caller then begins again.
        """
        if self.recovery_point < end:
            for segment in self._segments[self._segment_index(self.recovery_point) :]:
                if segment.base_offset >= end:
                    break
                await self._fsync(segment)
                await segment.transaction_index.flush()
                if generation != self._generation:
                    return
        closed = [each for each in self._unsealed if each.base_offset < end]
        for segment in closed:
            await self._fsync(segment)
            if generation != self._generation:
                return
            await segment.trim()
            if generation != self._generation:
                return
            segment.seal()
        await self._flush_derived()
        if generation == self._generation:
            self._unsealed = [each for each in self._unsealed if each not in closed]

    async def _fsync(self, segment: Segment) -> None:
        """Flush a log file; a failure is final, for the kernel forgets what it could not write."""
        try:
            await self._disk.fsync(segment.file)
        except OSError as error:
            self._fail_disk(f"{segment.file.path}: {error}")
            raise

    async def _flush_derived(self) -> None:
        """Make the epochs, new snapshots and new file names durable."""
        await self._producer_files.sync()
        await self._producer_files.keep_digests(self._segments)
        if not self._is_cutting:
            await self._epoch_file.write(self._epochs)
        await self.names.sync()

    @file_task
    async def keep(self) -> None:
        """Make a new log's directory durable.  Raises RefusedError if log or disk failed."""
        self._check_online()
        try:
            await self.names.keep()
        except OSError as error:
            self._refuse(error)
        self._check_online()  # its directory may have failed meanwhile

    @file_task
    async def roll(self, *, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty, and flush the closed one."""
        await self.keep()
        if self._active.size_bytes:
            await self.flush(self._roll(self.end_offset, now_ms).base_offset)

    # --- removing ---

    @file_task
    async def truncate_to(self, offset: Offset) -> bool:
        """Remove all from `offset` on; return whether anything was removed.

        A batch that `offset` lies within goes whole: the log then ends at that batch's start, so
        that no gap is left which after a crash would look like loss.  Where that is below the log
        start nothing is left, and the log begins again there, or at an `offset` before it.  A
        leadership that begins at `offset` goes even when nothing was written in it: it may not be
        the leader's (KIP-279).
        """
        self._check_online()
        if offset >= self.end_offset:
            self._epochs.truncate_from_end(offset)
            return False
        try:
            # A batch that `offset` lies within goes whole: it begins in that segment.
            segment = self._segments[self._segment_index(offset)]
            await self._end_cleaning(segment.base_offset)
            return await self._truncate_to(offset)
        finally:
            self.note_hole(self.hole_offset)
            self.after_cut(self)

    async def _end_cleaning(self, offset: Offset) -> None:
        try:
            await self.before_cut(self, offset)
        except OSError as error:
            self._refuse(error)
        self._check_online()
        self.first_dirty_offset = min(self.first_dirty_offset, offset)

    async def _truncate_to(self, offset: Offset) -> bool:
        try:
            await self._epoch_file.write(self._epochs)  # none is written while it cuts
            place = await when_cached(
                self._disk, lambda: self._segments[self._segment_index(offset)].place_to_cut(offset)
            )
        except OSError as error:
            self._fail_by(error, self.directory)
            self._refuse(error)
        end_offset = offset if place is None else min(offset, Offset(place[1]))
        if end_offset < self.log_start_offset:
            await self._begin_again_at(min(offset, self.log_start_offset))
            return True
        self._generation += 1
        before = self.recovery_checkpoint, self.high_watermark
        kept = self._segment_index(offset) + 1
        removed = self._segments[kept:]
        del self._segments[kept:]
        active = self._active
        self._unsealed = [s for s in self._unsealed if s not in removed and s is not active]
        self._is_cutting = True
        try:
            active.activate(self.config)
            position = active.size_bytes if place is None else place[0]
            active.cut(position=position, end_offset=end_offset)
            self.end_offset = end_offset
            self.on_cut(end_offset)
            self.high_watermark = min(self.high_watermark, end_offset)
            self.recovery_point = min(self.recovery_point, end_offset)
            self._epochs.truncate_from_end(end_offset)
            for segment in reversed(removed):
                await self._remove_segment(segment)
            await self._disk.truncate(active.file, position)
            await self._fsync(active)  # lest old bytes come back behind new ones
            self._check_online()  # its directory may have failed meanwhile
            active.cut_index_files()  # not before: until then a start may trust this segment
            await self._epoch_file.write(self._epochs)
            await active.load_timestamps()
            await self._reload_producers()
            if self.recovery_checkpoint < before[0] or self.high_watermark < before[1]:
                await self.on_recede(self)
        except OSError as error:
            self._fail_by(error, self.directory)  # half cut: nothing may be written after it
            self._refuse(error)
        finally:
            self._is_cutting = False
        return True

    async def _reload_producers(self) -> None:
        """Bring the producers back to what they were at the end offset."""
        await self._producer_files.remove_above(self.end_offset)
        reloaded = await load_producers(
            self._disk,
            DirectoryView(self._disk, self.directory),
            self._segments,
            self.end_offset,
            self.config,
            now_ms=0,
        )
        reloaded.keep_from(self._producers)
        reloaded.on_high_watermark(self.high_watermark)
        self._replace_producers(reloaded)

    def _replace_producers(self, states: ProducerStates) -> None:
        self._producer_files.forget()
        states.enter(self._producers.leave())
        self._producers = states

    @file_task
    async def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Remove everything; the log is empty and begins and ends at `offset`."""
        self._check_online()
        try:
            await self._end_cleaning(min(offset, self.log_start_offset))
            await self._begin_again_at(offset)
        finally:
            self.after_cut(self)

    async def _begin_again_at(self, offset: Offset) -> None:
        self._generation += 1
        before = self.recovery_checkpoint, self.high_watermark
        self.log_start_offset = self.end_offset = self.high_watermark = offset
        self.recovery_point, self.hole_offset = offset, None
        self.on_cut(Offset(0))
        self._epochs.clear()
        self._unsealed.clear()
        self._is_cutting = True
        # What another caller is removing goes too, but for its oldest that caller need not go on:
        # what stayed behind would be a gap before all that is appended from now on.
        doomed = [*self._leaving, *self._segments]
        del self._leaving[1 if self._is_removing else 0 :]
        try:
            for segment in reversed(doomed):
                await self._remove_segment(segment)
            await self._producer_files.remove_above(Offset(-1))
            self._check_online()  # its directory may have failed meanwhile
            new = Segment(self._disk, self.directory, offset, self.config, now_ms=0)
            new.begin(self.config)
            self._segments[:] = [new]
            self._replace_producers(ProducerStates(offset))
            self.names.change_count += 1
            await self.names.sync()  # lest a later segment's name is kept without this one's
            await self._epoch_file.write(self._epochs)
            if self.recovery_checkpoint < before[0] or self.high_watermark < before[1]:
                await self.on_recede(self)
        except OSError as error:
            self._fail_by(error, self.directory)
            self._refuse(error)
        finally:
            self._is_cutting = False

    @file_task
    async def delete_records_before(self, offset: Offset) -> None:
        """Raise the log start durably; OFFSET_OUT_OF_RANGE beyond the high watermark.

        A full disk refuses it, lest a kill bring back what is deleted; what it passed goes anyway.
        """
        self.raise_log_start(offset)
        is_full = False
        try:
            await self.on_log_start_raised(self)
        except OSError as error:
            if is_disk_failure(error):
                self._refuse(error)
            is_full = True
        await self._remove_passed()
        if is_full:
            try:
                await self.on_log_start_raised(self)
            except OSError as second:
                self._refuse(second)

    def raise_log_start(self, offset: Offset) -> None:
        """Raise the log start in memory; `delete_records_before` makes that durable."""
        self._check_online()
        if offset > self.high_watermark:
            raise RefusedError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot delete up to {offset}: the high watermark is {self.high_watermark}",
            )
        if offset > self.log_start_offset:
            self._raise_log_start(offset)

    def _raise_log_start(self, offset: Offset) -> None:
        self.log_start_offset = max(self.log_start_offset, offset)
        self._producers.on_log_start(self.log_start_offset)

    @file_task
    async def delete_old_segments(self, now_ms: int) -> int:
        """Remove segments that retention or the log start no longer keeps; return how many.

        None while the log is truncated or cleaned, or is new: the next round comes.
        """
        self._check_online()
        if self._is_cutting or self.is_being_cleaned or self.names.is_new:
            return 0
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
        await self._remove_passed()
        return count

    async def _remove_segment(self, segment: Segment) -> None:
        """Remove a segment durably, so that of several a crash brings back none out of order."""
        await segment.remove()
        await self._disk.fsync_directory(self.directory)

    async def _set_aside(self, segment: Segment) -> None:
        """Take a segment's names away durably; its files stay for file.delete.delay.ms."""
        paths = await segment.set_aside()
        await self._disk.fsync_directory(self.directory)
        if self.remove_later is not None:
            self.remove_later(paths, self.config.file_delete_delay_ms)
            return
        for path in paths:
            with suppress(FileNotFoundError):
                await self._disk.unlink(path)

    async def _remove_passed(self) -> None:
        """Remove the segments that lie all below the log start.

        What a power cut may bring back is flushed before: a torn one would cost what follows it.
        While the log is cleaned they stay; the cleaner removes them when it has ended.
        """
        if self.is_being_cleaned:
            return
        doomed = self._segments[: self._segment_index(self.log_start_offset)]
        try:
            await self._flush_unsealed(doomed)
            if not self._is_cutting:  # a truncation under way reads them; the next round comes
                self._leaving += self._part_with(doomed)
            if not self._is_removing:  # of two callers one removes all, so that no gap is left
                await self._remove_leaving()
        except OSError as error:
            self._refuse(error)

    async def _flush_unsealed(self, doomed: list[Segment]) -> None:
        for segment in doomed:
            if not segment.is_sealed and segment in self._segments:
                await self._fsync(segment)

    def _part_with(self, doomed: list[Segment]) -> list[Segment]:
        """Take those segments from the log that it still begins with; return them."""
        passed = self._segments[: self._segment_index(self.log_start_offset)]
        parted = [segment for segment in passed if segment in doomed]
        if parted:
            self._generation += 1
            del self._segments[: len(parted)]
            self._unsealed = [segment for segment in self._unsealed if segment not in parted]
        return parted

    async def _remove_leaving(self) -> None:
        self._is_removing = True
        try:
            await self.names.sync()  # lest one goes durably and the next one never came
            while self._leaving:
                self._check_online()
                segment = self._leaving[0]
                await self._set_aside(segment)
                await self._producer_files.remove(segment.base_offset)
                del self._leaving[0]
            # Not before, nor up to the log start, whose checkpoint a kill may lose: a log with
            # records of epochs it does not know tells followers that nothing diverges.
            self._epochs.truncate_from_start(self._segments[0].base_offset)
        finally:
            self._is_removing = False

    # --- ending ---

    @file_task
    async def close(self) -> None:
        """Flush, trim the indexes, write the producer snapshot: what a clean marker promises."""
        await self.flush()
        await self.keep()  # an empty log has nothing to flush
        try:
            if self._active.end_preallocation():
                await self._fsync(self._active)
            self._active.add_last_time_entry()
            if self._active.size_bytes:
                await self._active.trim()
                self.names.change_count += not self._active.has_index_names
                await self.names.sync()
            await self._producer_files.write_all(self._producers, self.end_offset, self._segments)
            self._epochs.truncate_from_end(self.end_offset)  # a start keeps none without a record
            await self._epoch_file.write(self._epochs)
        except OSError as error:
            self._refuse(error)
        self.abandon()

    def abandon(self) -> None:
        """Let go of the files as they are, before the directory is removed or after a failure."""
        self._fail("the log is closed")
        self._generation += 1
        self._producers.leave()
        for segment in self._segments:
            segment.close()
