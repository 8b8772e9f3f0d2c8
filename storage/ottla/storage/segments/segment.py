"""One segment of a log: a series of batches in a `.log` file, with its three indexes.

The newest segment of a log is active: it receives appends, and its indexes are in memory. A closed
segment is sealed by `seal`: its last time index entry is written, and its indexes are trimmed.

Invariants: the file contains complete batches of increasing offsets in `[0, size_bytes)`. A batch
gets an index entry if it begins more than `index.interval.bytes` after the last batch with an entry
(Kafka's rule).
"""

from contextlib import suppress
from struct import Struct
from typing import Final

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.model.limits import BATCH_HEADER_BYTES, INT32_MAX
from ottla.storage.disk.disk_seam import (
    Disk,
    DiskFile,
    NotCachedError,
    read_some,
    when_cached,
)
from ottla.storage.segments.abort_digests import NO_ABORTS, AbortDigest
from ottla.storage.segments.entry_file import EntryFile
from ottla.storage.segments.files import (
    DELETED,
    LOG,
    OFFSET_INDEX,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from ottla.storage.segments.indexes import OffsetIndex, TimeIndex
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.transaction_index import AbortedTransaction, TransactionIndex
from ottla.wire.batch import (
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
)
from ottla.wire.legacy import (
    ENTRY_BYTES_LEAST,
    ENTRY_BYTES_MIN,
    is_entry_at,
    messages,
    timestamp_at,
)

_BATCH_START: Final = Struct(">qi")
_DELTA: Final = Struct(">i")
_TIMESTAMP: Final = Struct(">q")
_NOTHING_FOUND: Final = (-1, 0)
LAST_OFFSET_DELTA_AT: Final = 23
WALK_HEADER_BYTES: Final = MAX_TIMESTAMP_AT + _TIMESTAMP.size
"""Number of bytes that a scan of a segment reads of each batch header before it moves to the next
batch."""

WALK_BLOCK_BYTES = 8192
"""Number of bytes per read when a segment is scanned for an offset. With twice the index interval,
nearly every batch is found in one read. With more, more bytes are copied than needed."""

COLD_BLOCK_BYTES = 1 << 20
"""Number of bytes of a log file that are loaded in one step when a scan or read reaches a range
that is not in the page cache. With fewer, reads wait for the disk more often. With more, the first
response is delayed, and more of the bytes may never be used."""

assert COLD_BLOCK_BYTES >= WALK_BLOCK_BYTES, "else a walk never finds what it had brought in"

HOT_BLOCK_COUNT_MAX = 64
"""Number of cached blocks that a scan over a segment's batch headers reads on the event loop before
other tasks run. With fewer, more calls are passed to the worker thread. With more, the event loop
is blocked for longer."""

RECENT_BATCH_COUNT_MAX = 128
"""Number of recent batches of a segment whose file positions are stored in memory, so that fetches
near the log's end and the high watermark need no look-up. With fewer, fetches of slow followers
search the index. With more, every partition uses more memory."""

SEGMENT_OFFSETS_MAX: Final = INT32_MAX + 1
"""Maximum number of offsets that a segment may span. An index entry stores an offset relative to
the segment's base offset as an int32."""


SIZE_MIN = {MAGIC: BATCH_HEADER_BYTES, **ENTRY_BYTES_MIN}
"""Size in bytes of the smallest possible batch, by its magic value (format version). Magic values
below 2 belong to the formats of old brokers (`wire.legacy`)."""


def max_timestamp_of(header: bytes | bytearray) -> int:
    """Return the largest timestamp of a batch in ms, as stated in its header. `header` contains at
    least the first bytes of the header."""
    if header[MAGIC_AT] != MAGIC:
        return timestamp_at(header, 0) if is_entry_at(header, 0) else NO_TIMESTAMP
    if len(header) < WALK_HEADER_BYTES:
        return NO_TIMESTAMP
    return int(_TIMESTAMP.unpack_from(header, MAX_TIMESTAMP_AT)[0])


_NONE_RECENT: dict[int, tuple[int, int]] = {}
"""Dict that segments without earlier batches, or without batches, share. It always stays empty."""


class Segment:
    """One segment of a log: the batches from `base_offset` up to the base offset of the next
    segment."""

    __slots__ = (
        "_aborts",
        "_behind_found",
        "_bytes_since_entry",
        "_directory",
        "_disk",
        "_is_preallocated",
        "_is_removed",
        "_recent",
        "_recent_before",
        "base_offset",
        "created_ms",
        "file",
        "first_timestamp_ms",
        "has_index_names",
        "is_future_reported",
        "is_read",
        "is_sealed",
        "jitter_ms",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "offset_index",
        "read_ms",
        "size_bytes",
        "time_index",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: Offset,
        config: LogConfig,
        *,
        now_ms: int,
        suffix: str = "",
        known_bytes: int | None = None,
    ) -> None:
        """Create the segment object. `suffix` is appended to the file names while the files do not
        have their final names yet.

        `known_bytes` is the size in bytes of an existing log file. The file is then opened only
        when it is needed.
        """
        self._disk = disk
        self.base_offset = base_offset
        self._directory = directory
        path = self.path_of(LOG + suffix)
        self.file: DiskFile
        if known_bytes is None:
            self.file = disk.open(path, create=True)
        else:
            self.file = disk.at(path)
        self.size_bytes = 0
        size = config.segment_index_bytes
        place = disk, directory, base_offset
        self.offset_index = OffsetIndex(*place, size, OFFSET_INDEX + suffix)
        self.time_index = TimeIndex(*place, size, TIME_INDEX + suffix)
        self._aborts: TransactionIndex | None = None
        if suffix:
            self._aborts = TransactionIndex(*place, TRANSACTION_INDEX + suffix)
        self.has_index_names = True
        """True if the directory contains this segment's index files. The names of the index files
        are durable as soon as the name of the log file is durable. Index files of a log's first
        segment are created with their first entries."""
        self.created_ms = now_ms
        self.jitter_ms = 0
        self.is_sealed = False
        self.is_future_reported = False
        """True if the broker has already reported that a timestamp in the future prevents the
        removal of this segment."""
        self.is_read = False
        """True if records were read since `read_ms` was set the last time."""
        self.read_ms = 0
        """Time in ms since 1970 up to which the segment's reads are known, or 0. It is updated only
        if local.retention.free.bytes is set."""
        self._is_removed = False
        self._is_preallocated = False
        self.first_timestamp_ms = NO_TIMESTAMP
        """Timestamp in ms of the segment's first batch, from which segment.ms is measured. -1 if
        there is no batch yet."""
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset: int = base_offset
        self._bytes_since_entry = 0
        self._behind_found = _NOTHING_FOUND
        """End of the batch that the last look-up in this segment found, as the offset and the file
        position directly after the batch."""
        # The first batch of a file replaces the shared dict.
        self._recent: dict[int, tuple[int, int]] = _NONE_RECENT if known_bytes == 0 else {}
        """File position and size in bytes of each of the most recently appended batches, by base
        offset."""
        self._recent_before: dict[int, tuple[int, int]] = _NONE_RECENT
        """File position and size in bytes of the batches appended before those in `_recent`, by
        base offset. The whole dict is replaced once `_recent` is full."""

    def path_of(self, suffix: str) -> str:
        """Return the path of the segment's file with the given suffix."""
        return f"{self._directory}/{file_name(self.base_offset, suffix)}"

    @property
    def transaction_index(self) -> TransactionIndex:
        """The transaction index of the segment. The object is created at its first use: most
        segments have no aborted transactions, and need no object of 120 bytes."""
        if self._aborts is None:
            self._aborts = TransactionIndex(self._disk, self._directory, self.base_offset)
        return self._aborts

    @property
    def transaction_index_path(self) -> str:
        """Path of the segment's `.txnindex` file, which may not exist."""
        return self.path_of(TRANSACTION_INDEX) if self._aborts is None else self._aborts.path

    @property
    def abort_count(self) -> int:
        """Number of aborted transactions in the segment's transaction index."""
        return 0 if self._aborts is None else self._aborts.count

    @property
    def abort_digest(self) -> AbortDigest:
        """Number and CRC of the segment's aborted transactions."""
        return NO_ABORTS if self._aborts is None else self._aborts.digest

    @property
    def _indexes(self) -> tuple[EntryFile, ...]:
        """The segment's indexes, without a transaction index that has never been used."""
        indexes = self.offset_index, self.time_index
        return indexes if self._aborts is None else (*indexes, self._aborts)

    def begin(self, config: LogConfig) -> None:
        """Make the segment empty and active, to receive appends. Existing contents of its files are
        removed."""
        self.file.set_size(0)
        self._is_preallocated = config.preallocate
        if config.preallocate:
            self.file.set_size(config.segment_bytes)
        self.restart(config)

    def end_preallocation(self) -> bool:
        """Release the preallocated space after the last batch of the log file. Recovery would
        mistake this space for an incomplete batch.

        Returns True if there was such space: the caller must then flush the file.
        """
        if not self._is_preallocated:
            return False
        has_room = self.file.size_bytes > self.size_bytes
        if has_room:
            self.file.set_size(self.size_bytes)
        return has_room

    def restart(self, config: LogConfig) -> None:
        """Reset all state of the segment that is derived from its log file, before recovery derives
        the state again."""
        self.size_bytes = 0
        self._behind_found = _NOTHING_FOUND
        self._recent.clear()
        self._recent_before.clear()
        self._bytes_since_entry = 0
        self.first_timestamp_ms = self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self.is_sealed = False
        self.offset_index.begin(capacity_bytes=config.segment_index_bytes)
        self.time_index.begin(capacity_bytes=config.segment_index_bytes)
        if self._disk.exists(self.transaction_index_path):
            self.transaction_index.begin()

    def should_roll(
        self, config: LogConfig, size: int, max_timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        """Return whether the log must roll before it appends a batch, so that the batch is written
        to a new segment.

        This method is called for each append, so its arguments are positional to save time.
        """
        offsets, times = self.offset_index, self.time_index
        if (
            self.size_bytes > config.segment_bytes - size
            or offsets.count >= offsets.count_max
            or times.count >= times.count_max
            or last_offset - self.base_offset >= SEGMENT_OFFSETS_MAX
        ):
            return True
        if not self.size_bytes:
            return False
        if self.first_timestamp_ms >= 0 and max_timestamp >= 0:
            waited_ms = max_timestamp - self.first_timestamp_ms
        else:
            waited_ms = now_ms - self.created_ms
        return waited_ms > config.segment_ms - self.jitter_ms

    def has_no_room(self, *, size: int, last_offset: int) -> bool:
        """Return whether a batch does not fit into this segment, regardless of the settings.

        A new log rolls for no other reason before its directory is durable. Otherwise, a power
        failure might lose the name of the first segment but not that of a later segment.
        """
        is_far = last_offset - self.base_offset >= SEGMENT_OFFSETS_MAX
        return is_far or self.size_bytes + size > INT32_MAX

    def note_batch(
        self,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        size: int,
        interval_bytes: int,
    ) -> bool:
        """Update the segment's state for a batch that was written at the end of its file,
        `size_bytes`. Returns True if the batch got an index entry.

        This method is called for each append, so its arguments are positional to save time.
        """
        position = self.size_bytes
        if position == 0:
            self.first_timestamp_ms = max_timestamp
            self._recent = {}
        if max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp
            self.max_timestamp_offset = last_offset
        bytes_since_entry = self._bytes_since_entry
        is_indexed = bytes_since_entry > interval_bytes
        if is_indexed:
            # More entries may be due for the batches of one write than the index has room for. A
            # look-up then scans further, and the next write rolls.
            if not self.offset_index.is_full:
                self.offset_index.append(last_offset, position)
            if not self.time_index.is_full:
                self.time_index.append_if_later(self.max_timestamp_ms, self.max_timestamp_offset)
            bytes_since_entry = 0
        self.size_bytes = position + size
        self._bytes_since_entry = bytes_since_entry + size
        recent = self._recent
        if len(recent) >= RECENT_BATCH_COUNT_MAX // 2:
            self._recent_before, self._recent = recent, {}
            recent = self._recent
        recent[base_offset] = (position, size)
        return is_indexed

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction to the segment's transaction index. The first one creates the
        index file. Raises OSError if that fails."""
        if self.transaction_index.is_sealed:
            self.transaction_index.activate()
        self.transaction_index.append(aborted)
        self.transaction_index.write_if_possible()

    def write_indexes(self) -> None:
        """Write pending entries of the segment's indexes to their files, in groups. A full disk
        only delays them."""
        self.offset_index.write_if_due()
        self.time_index.write_if_due()

    def is_recent(self, offset: int) -> bool:
        """Return whether one of the batches most recently appended to this segment begins at
        `offset`."""
        return offset in self._recent or offset in self._recent_before

    def find(self, offset: int) -> tuple[int, int, int] | None:
        """Return the file position, base offset and size in bytes of the segment's first batch that
        ends after `offset`. Returns None if there is no such batch.

        Raises NotCachedError if a required range is not in the page cache.
        """
        recent = self._recent.get(offset) or self._recent_before.get(offset)
        if recent is not None:
            return recent[0], offset, recent[1]
        behind_offset, behind_position = self._behind_found
        if offset == behind_offset:  # the next read after a read of that batch alone
            return self.find_from(offset, behind_position)
        if offset <= self.base_offset:
            return self.find_from(offset, 0)
        index = self.offset_index
        known_offset, position = index.lookup(offset)
        if position and known_offset < offset:
            behind = index.position_behind_found()
            if behind - position > WALK_BLOCK_BYTES:
                found = self._large_batch_at(behind, offset)
                if found is not None:
                    return found
        return self.find_from(offset, position, known_offset if position else None)

    def _large_batch_at(self, position: int, offset: int) -> tuple[int, int, int] | None:
        """Return the result of `find` if the batch at `position` contains `offset`, or None if the
        batch does not contain it.

        Unlike `find`, this method does not read the batch before `position`. For large batches,
        this saves the read of a block.
        """
        if position + WALK_HEADER_BYTES > self.size_bytes:
            return None
        header = self.file.read_cached(position, WALK_HEADER_BYTES)
        base_offset, length = _BATCH_START.unpack_from(header, 0)
        size = length + LENGTH_END
        if (
            header[MAGIC_AT] != MAGIC
            or not SIZE_MIN[MAGIC] <= size <= self.size_bytes - position
            or not base_offset <= offset
        ):
            return None
        last_offset = base_offset + _DELTA.unpack_from(header, LAST_OFFSET_DELTA_AT)[0]
        if last_offset < offset:
            return None
        self._behind_found = last_offset + 1, position + size
        return position, base_offset, size

    def place_to_cut(self, offset: int) -> tuple[int, int, int] | None:
        """Return the file position, base offset and size in bytes of the batch at which a
        truncation to `offset` cuts the file, or None if there is no such batch.

        The result is that of `find`, with one exception: for a wrapper message of an old format,
        the base offset is that of the first message inside. Also raises NotCachedError if
        `activate` would have to wait.
        """
        for index in self._indexes:
            index.check_cached()
        found = self.find(offset)
        if found is None:
            return None
        position, base_offset, size = found
        if self.file.read_cached(position + MAGIC_AT, 1)[0] != MAGIC:
            with suppress(CorruptDataError):
                base_offset = next(messages(self.file.read_cached(position, size))).offset
        return position, base_offset, size

    def find_from(
        self, offset: int, position: int, known_offset: int | None = None
    ) -> tuple[int, int, int] | None:
        """Return the result of `find` for `offset`, by scanning the batches from the one at
        `position` on.

        If the index entry is correct, the batch at `position` ends at `known_offset` or before. An
        index entry that points beyond the offset would hide the batches in between. Raises
        CorruptDataError if the index entry is wrong or a batch is invalid. The scan does not check
        CRCs, so a wrong length must not lead backwards or outside the file.
        """
        end = self.size_bytes
        block: bytes | bytearray = b""
        block_at = position
        if not 0 <= position <= end or (position == end and known_offset is not None):
            raise CorruptDataError(f"{self.offset_index.path}: position {position} of {end} bytes")
        while position < end:
            at = position - block_at
            if at + WALK_HEADER_BYTES > len(block):
                block_at = position
                at = 0
                try:
                    block = self.file.read_cached(position, min(WALK_BLOCK_BYTES, end - position))
                except NotCachedError:
                    size = min(COLD_BLOCK_BYTES, end - position)
                    raise NotCachedError(self.file, position, size) from None
                if len(block) < WALK_HEADER_BYTES and not is_entry_at(block, 0):
                    if known_offset is not None:
                        raise self._no_batch_at(position)
                    return None  # truncated during the scan
            base_offset, length = _BATCH_START.unpack_from(block, at)
            size = length + LENGTH_END
            magic = block[at + MAGIC_AT]
            if not SIZE_MIN.get(magic, INT32_MAX) <= size <= end - position:
                raise self._no_batch_at(position)
            last_offset = base_offset
            if magic == MAGIC:
                last_offset += _DELTA.unpack_from(block, at + LAST_OFFSET_DELTA_AT)[0]
            if known_offset is not None and last_offset > known_offset:
                raise CorruptDataError(
                    f"{self.offset_index.path}: the batch at {position} ends at {last_offset}, "
                    f"not at {known_offset}"
                )
            if last_offset >= offset:
                self._behind_found = last_offset + 1, position + size
                return position, base_offset, size
            known_offset = None
            position += size
        return None

    def _no_batch_at(self, position: int) -> CorruptDataError:
        return CorruptDataError(f"{self.file.path}: no batch begins at {position}")

    def cut(self, *, position: int, end_offset: Offset) -> None:
        """Remove all batches at and after the file position `position` from the segment, in memory
        only.

        `end_offset` is the new end of the log. The caller truncates the files afterwards, and then
        calls `load_timestamps`.
        """
        self.offset_index.truncate_to(end_offset)
        self.time_index.truncate_to(end_offset)
        if self._aborts is not None and not self._aborts.is_sealed:
            self._aborts.truncate_to(end_offset)
        self.size_bytes = position
        self._behind_found = _NOTHING_FOUND
        self._bytes_since_entry = 0
        places = {**self._recent_before, **self._recent}
        self._recent = {at: place for at, place in places.items() if place[0] < position}
        self._recent_before = _NONE_RECENT
        if position == 0:
            self.first_timestamp_ms = NO_TIMESTAMP

    def cut_index_files(self) -> None:
        """Truncate the segment's index files to the entries that remain after `cut`."""
        for index in self._indexes:
            index.cut_file()

    async def load_timestamps(self) -> None:
        """Determine the segment's first and largest timestamp again, because a truncation may have
        changed these timestamps."""
        if self.size_bytes and self.first_timestamp_ms == NO_TIMESTAMP:
            await self.load_first_timestamp()
        await self.load_max_timestamp()

    async def load_max_timestamp(self) -> None:
        """Determine the segment's largest timestamp from the time index and the batches after its
        last entry.

        The time index is updated whenever the offset index gets an entry, so no earlier batch has a
        larger timestamp. A full time index does not cover batches after its own last entry. Raises
        CorruptDataError if an index leads to an invalid batch.
        """
        timestamp_ms, offset, position = await when_cached(self._disk, self._last_indexed_time)
        if position < 0:
            raise CorruptDataError(f"{self.offset_index.path}: position {position}")
        if not self.time_index.is_full:
            position = max(position, self.offset_index.last_entry[1])
        self.max_timestamp_ms, self.max_timestamp_offset = timestamp_ms, offset
        block: bytes | bytearray = b""
        block_at, block_count = position, 0
        while position + ENTRY_BYTES_LEAST <= self.size_bytes:
            if position + WALK_HEADER_BYTES > block_at + len(block):
                block_at, block_count = position, block_count + 1
                block = await self._header_block(position, block_count % HOT_BLOCK_COUNT_MAX > 0)
            header = block[position - block_at : position - block_at + WALK_HEADER_BYTES]
            if len(header) < ENTRY_BYTES_LEAST:
                raise self._no_batch_at(position)
            base_offset, length = _BATCH_START.unpack_from(header)
            magic = header[MAGIC_AT]
            if length + LENGTH_END < SIZE_MIN.get(magic, INT32_MAX):
                raise self._no_batch_at(position)
            max_timestamp = max_timestamp_of(header)
            if max_timestamp > self.max_timestamp_ms:
                self.max_timestamp_ms = max_timestamp
                is_batch = magic == MAGIC
                delta = _DELTA.unpack_from(header, LAST_OFFSET_DELTA_AT)[0] if is_batch else 0
                self.max_timestamp_offset = base_offset + delta
            position += length + LENGTH_END

    def _last_indexed_time(self) -> tuple[int, int, int]:
        """Return the timestamp and offset of the last time index entry, and the file position after
        which batches may have a larger timestamp."""
        timestamp_ms, offset = self.time_index.last_entry
        return timestamp_ms, offset, self.offset_index.lookup(offset)[1]

    async def _header_block(self, position: int, may_be_cached: bool) -> bytes | bytearray:
        """Return a block of the log file from `position` on. A worker thread reads the block if it
        is not in the page cache or if other tasks should run first."""
        left = self.size_bytes - position
        if may_be_cached:
            with suppress(NotCachedError):
                return self.file.read_cached(position, min(WALK_BLOCK_BYTES, left))
        return await self._disk.read(self.file, position, min(COLD_BLOCK_BYTES, left))

    async def load_first_timestamp(self) -> None:
        """Determine the timestamp of the segment's first batch, from which segment.ms is
        measured."""
        if not self.size_bytes:
            return
        size = min(WALK_HEADER_BYTES, self.size_bytes)
        header = await read_some(self._disk, self.file, 0, size)
        if len(header) == WALK_HEADER_BYTES or is_entry_at(header, 0):
            self.first_timestamp_ms = max_timestamp_of(header)

    def activate(self, config: LogConfig) -> None:
        """Make the segment active, so that it receives appends. Its indexes are loaded into
        memory."""
        self.offset_index.activate(capacity_bytes=config.segment_index_bytes)
        self.time_index.activate(capacity_bytes=config.segment_index_bytes)
        if self.abort_count:
            self.transaction_index.activate()
        self.is_sealed = False

    def add_last_time_entry(self) -> None:
        """Add the closing entry to the time index: the segment's largest timestamp."""
        if self.size_bytes and not self.time_index.is_sealed:
            self.time_index.append_if_later(self.max_timestamp_ms, self.max_timestamp_offset)

    async def trim(self) -> None:
        """Make the segment's index files durable with exactly their entries. The caller flushes the
        log file itself."""
        for index in self._indexes:
            await index.trim()

    def seal(self) -> None:
        """Release the memory of the segment's trimmed indexes. Only reads may follow."""
        for index in self._indexes:
            index.seal()
        self._recent.clear()
        self._recent_before.clear()
        self.is_sealed = True

    def use_final_names(self) -> None:
        """Set the paths of the segment's open files to their final names. The caller then renames
        the files on disk."""
        self.offset_index.ending = OFFSET_INDEX
        self.time_index.ending = TIME_INDEX
        self.transaction_index.ending = TRANSACTION_INDEX

    def close(self) -> None:
        """Close the segment's files. File slices that are still being sent to a client have their
        own descriptors."""
        self.file.close()
        self.offset_index.close()
        self.time_index.close()
        self.transaction_index.close()

    def discard(self) -> None:
        """Close and unlink, without waiting, the files of a segment whose creation failed. The log
        file is unlinked first."""
        self.close()
        for suffix in SEGMENT_SUFFIXES:
            self._disk.unlink_empty(self.path_of(suffix))

    async def rename_to_deleted(self) -> list[str]:
        """Close the segment's files and rename them to `.deleted`, the log file first. Returns
        their new paths.

        See `remove` for the effect of a crash and of concurrent calls.
        """
        self.close()
        paths: list[str] = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.path_of(suffix)
            if not self._is_removed and self._disk.exists(path):
                with suppress(FileNotFoundError):
                    await self._disk.rename(path, path + DELETED)
                    paths.append(path + DELETED)
        self._is_removed = True
        return paths

    async def remove(self) -> None:
        """Close and unlink the segment's files, the log file first, so that a crash leaves a
        complete segment or none.

        The next start removes index files that have no log file. The opposite order could leave a
        log without its transaction index, which could not be rebuilt. Two tasks may call this for
        one segment at the same time.
        """
        self.close()
        for suffix in SEGMENT_SUFFIXES:
            path = self.path_of(suffix)
            if not self._is_removed and self._disk.exists(path):
                with suppress(FileNotFoundError):
                    await self._disk.unlink(path)
        self._is_removed = True
