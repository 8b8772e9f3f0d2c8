"""Scan of the batches in a segment's `.log` file, in large blocks and with all checks, for recovery
and compaction.

Entries of the formats v0 and v1, which old brokers may have written, count as batches. A scan ends
at the end of the range or at the first bytes that are not a complete, valid batch.
`BatchScan.valid_end` is then the end position, and `BatchScan.problem` the reason. A worker thread
of the log directory reads the blocks. Headers and CRCs are checked on the event loop; records are
not examined.
"""

from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from ottla.model.errors import CorruptDataError
from ottla.model.limits import BATCH_HEADER_BYTES, INT32_MAX, INT64_MAX, MIB
from ottla.wire.batch import CRC_START, LENGTH_END, MAGIC, BatchHeader, parse_header
from ottla.wire.crc import crc32c
from ottla.wire.legacy import entry_header, is_crc_right, is_entry_at

BLOCK_BYTES = 1 * MIB
"""Number of bytes of a log file that a scan reads per step. With smaller reads, more calls are
passed to the disk's worker thread. Larger reads exceed the processor's cache and block the event
loop for longer."""

F = TypeVar("F")
F_contra = TypeVar("F_contra", contravariant=True)


class RangeReader(Protocol[F_contra]):
    """Interface to read ranges of files, from a disk or from copied segments."""

    async def read(self, file: F_contra, position: int, size: int, /) -> bytes:
        """Return `size` bytes of a file from `position`, or fewer if the file ends before."""
        ...


class ScannedBlock(NamedTuple):
    """Complete batches that one read of a log file has returned."""

    data: memoryview
    position: int
    """Position of the block in the log file, in bytes."""
    batches: list[tuple[int, BatchHeader]]
    """Batches of the block, each as its position in `data` and its header."""
    size_bytes: int
    """Total size in bytes of the complete batches in the block."""


class BatchScan:
    """One scan of the batches in the range `[position, end)` of a log file. Call `next_block` until
    it returns None, then read `valid_end` and `problem`."""

    def __init__(
        self,
        disk: RangeReader[F],
        file: F,
        *,
        position: int,
        end: int,
        first_offset: int,
        base_offset: int | None,
        is_crc_checked: bool,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        """Create a scan of a segment's batches.

        `base_offset` is the segment's base offset, or None if offsets are not to be checked. The
        scan reports a batch whose offset is more than 2³¹ - 1 above the base offset
        (`is_overflow`), because an index entry cannot store such a difference.
        """
        self._read = partial(disk.read, file)
        self._end = end
        self._next_offset = first_offset
        self._base_offset = base_offset
        self._is_crc_checked = is_crc_checked
        self._block_bytes_min = self._block_bytes = block_bytes
        self.valid_end = position
        self.problem: str | None = None
        self.is_overflow = False

    async def next_block(self) -> ScannedBlock | None:
        """Read the next block of the file and return its complete, valid batches. Returns None at
        the end of the scan."""
        while self.valid_end < self._end and self.problem is None:
            position = self.valid_end
            size = min(self._block_bytes, self._end - position)
            data = memoryview(await self._read(position, size))
            if len(data) < size:
                self._end = position + len(data)  # shorter than it was: check the bytes that exist
            batches, consumed, wanted = self._check_block(data, self._end - position)
            self.valid_end = position + consumed
            self._block_bytes = max(self._block_bytes_min, wanted)
            if batches:
                return ScannedBlock(data, position, batches, consumed)
        return None

    def _check_block(
        self, data: memoryview, left: int
    ) -> tuple[list[tuple[int, BatchHeader]], int, int]:
        """Check one block of a log file. Returns three values: its complete batches with their
        positions, the total size of these batches in bytes, and the size of the batch that is cut
        off at the block's end."""
        batches: list[tuple[int, BatchHeader]] = []
        at = 0
        size = len(data)
        next_offset = self._next_offset
        base_offset = self._base_offset
        offset_max = INT64_MAX if base_offset is None else base_offset + INT32_MAX
        while size - at >= BATCH_HEADER_BYTES or is_entry_at(data, at):
            try:
                header = parse_header(data, at)
            except CorruptDataError as error:
                try:
                    header = entry_header(data, at)
                except CorruptDataError:
                    self.problem = error.where
                    break
            end = at + header.batch_length + LENGTH_END
            last_offset = header.base_offset + header.last_offset_delta
            if end > left:
                self.problem = f"batch at {at}: it ends beyond the file"
                break
            if header.base_offset < next_offset or header.last_offset_delta < 0:
                self.problem = f"batch at {at}: offset {header.base_offset} goes back"
                break
            if last_offset > offset_max:
                self.problem = f"batch at {at}: offset {last_offset} is out of the segment's range"
                self.is_overflow = True
                break
            if end > size:
                self._next_offset = next_offset
                return batches, at, end - at
            if self._is_crc_checked and (
                crc32c(data[at + CRC_START : end]) != header.crc
                if header.magic == MAGIC
                else not is_crc_right(data, at, header)
            ):
                self.problem = f"batch at {at}: its CRC is wrong"
                break
            batches.append((at, header))
            next_offset = last_offset + 1
            at = end
        else:
            if at < size == left:
                self.problem = f"batch at {at}: only {size - at} bytes of its header"
        self._next_offset = next_offset
        return batches, at, 0
