"""Writer of the `.cleaned` files of one new segment in a log compaction: the log, written block by
block, and its indexes.

Index entries follow the rules of ordinary segments (`segment.py`). A batch gets an entry if it
begins more than `index.interval.bytes` after the last batch with an entry. The last time index
entry contains the largest timestamp. Nothing is written while all batches are unchanged, because an
unchanged segment needs no new files. At the first change, the unchanged part before it is copied.
"""

from collections.abc import Sequence
from contextlib import suppress

from ottla.model.errors import CorruptDataError
from ottla.model.limits import INT32_MAX, MIB
from ottla.storage.cleaner.batch_filter import FilteredBlock, KeptBatch
from ottla.storage.cleaner.cleaning_task import CleanableSegment, CleanedGroup, CleaningTask
from ottla.storage.disk.disk_seam import Disk, DiskFile
from ottla.storage.segments.files import (
    CLEANED,
    LOG,
    OFFSET_INDEX,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from ottla.storage.segments.indexes import OffsetIndex, TimeIndex
from ottla.storage.segments.transaction_index import AbortedTransaction, TransactionIndex
from ottla.wire.batch import NO_TIMESTAMP

COPY_BYTES = MIB
"""Number of bytes per step when the unchanged start of an old segment is copied to the new
segment."""
WRITE_BACK_EVERY_BYTES = 2 * MIB
"""Number of bytes after which a new segment's write-back to the device is requested from the
kernel. With a larger number, appends to other logs wait longer for the device."""


class CleanedSegment:
    """Writer of the files of one new segment in a log compaction: call `add` for each block, then
    `finish` or `remove`."""

    def __init__(self, disk: Disk, task: CleaningTask, base_offset: int) -> None:
        self._disk = disk
        self._directory = task.directory
        self._base_offset = base_offset
        self._interval_bytes = task.index_interval_bytes
        self._index_bytes = task.segment_index_bytes
        self._log: DiskFile | None = None
        self._offset_entries: list[tuple[int, int]] = []
        self._time_entries: list[tuple[int, int]] = []
        self._aborted: list[AbortedTransaction] = []
        self._bytes_since_entry = 0
        self._first_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self.size_bytes = 0
        self._written_back_bytes = 0

    @property
    def is_begun(self) -> bool:
        """True if the `.cleaned` files of the new segment have been created."""
        return self._log is not None

    async def begin(self, source: DiskFile | None) -> int:
        """Create the log file of the new segment. Returns the number of bytes copied to the file
        from the start of `source`, the first old segment.

        The copied bytes contain the batches added so far, which are all unchanged.
        """
        self._log = self._disk.open(self._path(LOG), create=True)
        self._log.set_size(0)
        copied = 0
        while copied < self.size_bytes:
            assert source is not None
            size = min(COPY_BYTES, self.size_bytes - copied)
            data = await self._disk.read(source, copied, size)
            if len(data) < size:
                raise CorruptDataError(f"{source.path}: it ends at {copied + len(data)}")
            self._log.pwrite(copied, [data])
            copied += size
        return copied

    def add(self, block: FilteredBlock) -> int:
        """Append the kept batches of a block to the new segment. Returns the number of bytes
        written."""
        position = self.size_bytes
        for batch in block.batches:
            self._note(batch)
        self._aborted += block.aborted
        if self._log is None:
            return 0
        if block.batches:
            self._log.pwrite(position, block.chunks())
        return self.size_bytes - position

    def _note(self, batch: KeptBatch) -> None:
        position, size = self.size_bytes, batch.size_bytes
        if position + size > INT32_MAX:
            raise CorruptDataError(f"{self._path(LOG)}: more bytes than an index can point to")
        if position == 0:
            self._first_timestamp_ms = batch.max_timestamp_ms
        if batch.max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = batch.max_timestamp_ms
            self._max_timestamp_offset = batch.last_offset
        if self._bytes_since_entry > self._interval_bytes:
            self._offset_entries.append((batch.last_offset, position))
            self._time_entries.append((self._max_timestamp_ms, self._max_timestamp_offset))
            self._bytes_since_entry = 0
        self.size_bytes = position + size
        self._bytes_since_entry += size

    async def write_back(self) -> None:
        """Ask the kernel to write the added bytes to the device, once at least
        `WRITE_BACK_EVERY_BYTES` have been added since the last time."""
        if self._log is None or self.size_bytes - self._written_back_bytes < WRITE_BACK_EVERY_BYTES:
            return
        self._written_back_bytes = self.size_bytes
        await self._disk.write_back(self._log)

    async def finish(self, sources: Sequence[CleanableSegment]) -> CleanedGroup:
        """Make all files of the new segment durable. Returns the finished segment.

        As in Kafka, the log file gets the modification time of its last source. Tombstones of the
        formats v0 and v1 expire `delete.retention.ms` after this time. With a new modification
        time, each compaction would restart the retention of these tombstones.
        """
        assert self._log is not None
        self._log.set_modified_ms(sources[-1].modified_ms)
        await self._disk.fsync(self._log)
        self._log.close()
        await self._write_indexes()
        await self._disk.fsync_directory(self._directory)
        return CleanedGroup(
            base_offset=self._base_offset,
            sources=tuple(source.base_offset for source in sources),
            end_offset=sources[-1].end_offset,
            size_bytes=self.size_bytes,
            first_timestamp_ms=self._first_timestamp_ms,
            max_timestamp_ms=self._max_timestamp_ms,
            max_timestamp_offset=self._max_timestamp_offset,
        )

    async def _write_indexes(self) -> None:
        place = self._disk, self._directory, self._base_offset
        offsets = OffsetIndex(*place, self._index_bytes, OFFSET_INDEX + CLEANED)
        offsets.begin()
        for offset, position in self._offset_entries[: offsets.count_max]:
            offsets.append(offset, position)
        times = TimeIndex(*place, self._index_bytes, TIME_INDEX + CLEANED)
        times.begin()
        for timestamp_ms, offset in self._time_entries:
            if not times.is_full:
                times.append_if_later(timestamp_ms, offset)
        times.append_if_later(self._max_timestamp_ms, self._max_timestamp_offset)
        aborts = TransactionIndex(*place, TRANSACTION_INDEX + CLEANED)
        written: list[OffsetIndex | TimeIndex | TransactionIndex] = [offsets, times]
        if self._aborted:
            aborts.begin()
            for aborted in self._aborted:
                aborts.append(aborted)
            written.append(aborts)
        for index in written:
            await index.trim()
            index.close()

    async def remove(self) -> None:
        """Remove the files of the new segment. Files that the disk fails to remove are removed at
        the next start of the broker."""
        if self._log is None:
            return
        self._log.close()
        for suffix in SEGMENT_SUFFIXES:
            with suppress(OSError):
                if self._disk.exists(self._path(suffix)):
                    await self._disk.unlink(self._path(suffix))

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self._base_offset, suffix + CLEANED)}"
