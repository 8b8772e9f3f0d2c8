"""Driver that performs one log compaction over the `Disk` interface, in a worker process or in the
broker's event loop.

The driver reads the keys of the dirty section, then the log from its first segment, and writes one
new segment for each group of old ones. The old segments are never changed. The caller swaps in each
new segment before it requests the next one, so a compaction needs additional disk space for one
group at a time.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.storage.cleaner.batch_filter import BatchFilter
from ottla.storage.cleaner.cleaned_segment import CleanedSegment
from ottla.storage.cleaner.cleaning_task import (
    CleanableSegment,
    CleanedGroup,
    CleaningDone,
    CleaningStats,
    CleaningTask,
    Throttle,
)
from ottla.storage.cleaner.key_index import KeyIndex
from ottla.storage.cleaner.record_forms import RecordForm, new_record_work
from ottla.storage.cleaner.record_work import RecordWork
from ottla.storage.cleaner.segment_groups import SourceSegment, group_segments
from ottla.storage.cleaner.transactions import AbortedTransactions
from ottla.storage.disk.disk_seam import Disk, DiskFile, when_cached
from ottla.storage.segments.batch_scan import BatchScan, ScannedBlock
from ottla.storage.segments.files import LOG, OFFSET_INDEX, TIME_INDEX, file_name
from ottla.storage.segments.transaction_index import AbortedTransaction, TransactionIndex


def _stopped_clock() -> float:
    return 0.0


async def clean(
    disk: Disk,
    task: CleaningTask,
    throttle: Throttle,
    *,
    form: RecordForm | None = None,
    now_s: Callable[[], float] = _stopped_clock,
) -> AsyncGenerator[CleanedGroup | CleaningDone, None]:
    """Compact a log. Yields each new segment once its files are durable, and finally the result of
    the compaction.

    The files of a group that failed are removed, if the disk permits their removal. `form` is the
    per-record implementation, by default the fastest available one. `now_s` is the clock that times
    the passes. Raises CorruptDataError with file and position if data is corrupt, and OSError if
    the disk fails.
    """
    cleaning = _CleaningPass(disk, task, throttle, new_record_work(task, form), now_s)
    await cleaning.index()
    async with aclosing(cleaning.groups()) as groups:
        async for group in groups:
            yield group
    yield cleaning.done()


class _CleaningPass:
    def __init__(
        self,
        disk: Disk,
        task: CleaningTask,
        throttle: Throttle,
        work: RecordWork,
        now_s: Callable[[], float],
    ) -> None:
        self._now_s = now_s
        self._disk = disk
        self._task = task
        self._throttle = throttle
        self._work = work
        self._aborted = AbortedTransactions(())
        self._index = KeyIndex(task, work, self._aborted)
        self._filter: BatchFilter | None = None
        self._index_seconds = 0.0
        self._filter_seconds = 0.0
        self._indexed_bytes = 0
        self._read_bytes = 0
        self._written_bytes = 0

    def _path(self, segment: CleanableSegment, suffix: str) -> str:
        return f"{self._task.directory}/{file_name(segment.base_offset, suffix)}"

    async def _indexed_aborts(self) -> list[AbortedTransaction]:
        """Return the aborted transactions in the transaction indexes of all segments of the log."""
        found: list[AbortedTransaction] = []
        for segment in self._task.segments:
            index = TransactionIndex(self._disk, self._task.directory, segment.base_offset)
            if not self._disk.exists(index.path):
                continue
            index.open_sealed()
            try:
                found += await when_cached(self._disk, partial(_entries_of, index, segment))
            finally:
                index.close()
        return found

    async def index(self) -> None:
        """Run pass 1 of the compaction: add the keys of the dirty segments to the offset map, until
        the map is full."""
        begun = self._now_s()
        aborted = (*self._task.aborted_beyond, *await self._indexed_aborts())
        self._aborted = AbortedTransactions(aborted)
        self._index = KeyIndex(self._task, self._work, self._aborted)
        for segment in self._task.segments:
            if segment.end_offset <= self._task.first_dirty_offset:
                continue
            if segment.base_offset >= self._task.end_offset:
                break
            if not await self._index_segment(segment):
                break
        self._index_seconds = self._now_s() - begun

    async def _index_segment(self, segment: CleanableSegment) -> bool:
        """Add the record keys of a dirty segment to the offset map. Returns False once the map is
        full."""
        path = self._path(segment, LOG)
        file = self._disk.open(path)
        try:
            async with aclosing(self._blocks(file, segment)) as blocks:
                async for block in blocks:
                    self._indexed_bytes += block.size_bytes
                    with _Place(path, block):
                        has_room = self._index.add(block)
                    await self._throttle(block.size_bytes)
                    if not has_room:
                        return False
        finally:
            file.close()
        return True

    async def groups(self) -> AsyncGenerator[CleanedGroup, None]:
        """Run pass 2 of the compaction: write one new segment for each group of old ones, and yield
        each new segment."""
        begun = self._now_s()
        clean_to = self._index.clean_to
        self._filter = BatchFilter(self._task, clean_to, self._work, self._aborted)
        sources = [
            self._source(segment)
            for segment in self._task.segments
            if segment.base_offset < clean_to
        ]
        for group in group_segments(sources, self._task):
            cleaned = await self._clean_group([source.segment for source in group])
            self._filter_seconds += self._now_s() - begun
            if cleaned is not None:
                yield cleaned
            begun = self._now_s()

    def _source(self, segment: CleanableSegment) -> SourceSegment:
        return SourceSegment(
            segment,
            self._size_of(self._path(segment, OFFSET_INDEX)),
            self._size_of(self._path(segment, TIME_INDEX)),
        )

    def _size_of(self, path: str) -> int:
        if not self._disk.exists(path):
            return 0
        file = self._disk.open(path)
        try:
            return file.size_bytes
        finally:
            file.close()

    async def _clean_group(self, group: Sequence[CleanableSegment]) -> CleanedGroup | None:
        """Write one new segment that replaces a group of old ones, and return it. Returns None if
        the new segment would be identical to its only source."""
        cleaned = CleanedSegment(self._disk, self._task, group[0].base_offset)
        try:
            if len(group) > 1:
                await cleaned.begin(None)
            for segment in group:
                await self._clean_segment(segment, cleaned, is_last=segment is group[-1])
            if not cleaned.is_begun:
                return None
            return await cleaned.finish(group)
        except BaseException:
            await cleaned.remove()
            raise

    async def _clean_segment(
        self, segment: CleanableSegment, cleaned: CleanedSegment, *, is_last: bool
    ) -> None:
        assert self._filter is not None
        path = self._path(segment, LOG)
        are_old_tombstones_kept = segment.modified_ms > self._old_horizon_ms()
        file = self._disk.open(path)
        try:
            async with aclosing(self._blocks(file, segment)) as blocks:
                async for block in blocks:
                    with _Place(path, block):
                        filtered = self._filter.filter(
                            block,
                            end_at=segment.size_bytes if is_last else None,
                            are_old_tombstones_kept=are_old_tombstones_kept,
                        )
                    written = 0
                    if filtered.is_changed and not cleaned.is_begun:
                        written = await cleaned.begin(file)
                    written += cleaned.add(filtered)
                    await cleaned.write_back()
                    self._read_bytes += block.size_bytes
                    self._written_bytes += written
                    await self._throttle(block.size_bytes + written)
        finally:
            file.close()

    def _old_horizon_ms(self) -> int:
        """Return the time, in ms since 1970, that decides on tombstones of the formats v0 and v1.
        Tombstones in segments last modified up to this time are dropped."""
        clean = [
            segment.modified_ms
            for segment in self._task.segments
            if segment.end_offset <= self._task.first_dirty_offset
        ]
        return clean[-1] - self._task.delete_retention_ms if clean else -1

    async def _blocks(
        self, file: DiskFile, segment: CleanableSegment
    ) -> AsyncGenerator[ScannedBlock, None]:
        """Read a segment from its start, and yield its verified batches in blocks."""
        scan = BatchScan(
            self._disk,
            file,
            position=0,
            end=segment.size_bytes,
            first_offset=segment.base_offset,
            base_offset=None,
            is_crc_checked=True,
            block_bytes=self._task.io_buffer_bytes,
        )
        while (block := await scan.next_block()) is not None:
            if block.batches[-1][1].end_offset > segment.end_offset:
                raise CorruptDataError(
                    f"{file.path}: position {block.position}: a batch ends in the next segment"
                )
            yield block
        if scan.valid_end < segment.size_bytes:
            raise CorruptDataError(
                f"{file.path}: position {scan.valid_end}: {scan.problem or 'the file ends'}"
            )

    def done(self) -> CleaningDone:
        """Return the result of the compaction. Both passes must have ended."""
        assert self._filter is not None
        counts = self._filter.counts
        return CleaningDone(
            self._index.clean_to,
            CleaningStats(
                indexed_record_count=self._index.record_count,
                indexed_bytes=self._indexed_bytes,
                read_record_count=counts.read_record_count,
                read_bytes=self._read_bytes,
                written_record_count=counts.written_record_count,
                written_bytes=self._written_bytes,
                keyless_record_count=counts.keyless_record_count,
                key_count=self._work.map.count,
                key_count_max=self._work.map.count_max,
                index_seconds=self._index_seconds,
                filter_seconds=self._filter_seconds,
            ),
        )


def _entries_of(index: TransactionIndex, segment: CleanableSegment) -> list[AbortedTransaction]:
    """Return all aborted transactions in a segment's transaction index.

    Raises CorruptDataError if an entry does not belong to the segment. Raises NotCachedError if the
    index is not in the page cache.
    """
    if not index.is_sound(Offset(segment.base_offset)):
        raise CorruptDataError(f"{index.path}: its entries cannot be of the segment")
    return [index.entry_at(number) for number in range(index.count)]


class _Place:
    """Context manager that adds the file and position of a scanned block to a CorruptDataError."""

    def __init__(self, path: str, block: ScannedBlock) -> None:
        self._path = path
        self._block = block

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, CorruptDataError):
            raise CorruptDataError(
                f"{self._path}: behind position {self._block.position}: {error.where}"
            ) from error
