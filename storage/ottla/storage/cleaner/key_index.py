"""Pass 1 of a log compaction: collects the keys of the dirty section and their largest offsets, up
to the capacity of the offset map. No I/O.

Records of aborted transactions, control records and records without a key are skipped. The pass
ends when a key does not fit into the map. Only the records before the first record with that key
are then clean after the compaction.
"""

from itertools import groupby

from ottla.model.errors import CorruptDataError
from ottla.storage.cleaner.batch_bodies import runs_of
from ottla.storage.cleaner.cleaning_task import CleaningTask
from ottla.storage.cleaner.record_work import RecordWork
from ottla.storage.cleaner.transactions import AbortedTransactions
from ottla.storage.segments.batch_scan import ScannedBlock
from ottla.wire.batch import MAGIC, BatchHeader
from ottla.wire.legacy import messages


class KeyIndex:
    """State of pass 1 of one log compaction. It must receive the blocks of all dirty segments in
    order."""

    def __init__(self, task: CleaningTask, work: RecordWork, aborted: AbortedTransactions) -> None:
        self._first = task.first_dirty_offset
        self._end = task.end_offset
        self._work = work
        self._aborted = aborted
        self.clean_to = task.end_offset
        """End offset of the section of the log that is clean after this compaction."""
        self.record_count = 0

    def add(self, block: ScannedBlock) -> bool:
        """Add the record keys of a block of batches to the offset map. Returns False once the map
        is full.

        Raises CorruptDataError if the data is corrupt.
        """
        wanted = [(at, header) for at, header in block.batches if self._is_wanted(header)]
        data = bytes_of_block(block)
        for is_current, batches in groupby(wanted, lambda each: each[1].magic == MAGIC):
            if not is_current:
                for at, header in batches:
                    if not self._add_entry(data[at : at + header.size_bytes]):
                        return False
                continue
            for run in runs_of(data, batches):
                indexed = self._work.index(run, self._first, self._end)
                self.record_count += indexed.record_count
                if indexed.full_at is not None:
                    self._end_at(indexed.full_at)
                    return False
        return True

    def _is_wanted(self, header: BatchHeader) -> bool:
        if header.magic != MAGIC:
            return header.last_offset >= self._first
        return (
            header.record_count > 0
            and header.last_offset >= self._first
            and header.base_offset < self._end
            and not header.is_control
            and not self._aborted.holds(header)
        )

    def _add_entry(self, entry: bytes) -> bool:
        """Add the record keys of an entry in message format v0 or v1 to the offset map. Returns
        False once the map is full."""
        offset_map = self._work.map
        for message in messages(entry):
            if message.key is not None and self._first <= message.offset < self._end:
                if offset_map.count >= offset_map.count_max:
                    self._end_at(message.offset)
                    return False
                offset_map.put(message.key, message.offset)
            self.record_count += 1
        return True

    def _end_at(self, offset: int) -> None:
        if offset <= self._first:
            raise CorruptDataError(f"offset {offset}: an empty offset map takes no key")
        self.clean_to = offset


def bytes_of_block(block: ScannedBlock) -> bytes:
    """Return the bytes object behind the memoryview of a scanned block. Reading single bytes from
    the bytes object is faster than from the memoryview."""
    data = block.data.obj
    return data if isinstance(data, bytes) else bytes(block.data)
