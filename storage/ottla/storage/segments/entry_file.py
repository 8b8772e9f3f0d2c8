"""A file of fixed-size entries that grows only at its end: the common base of a segment's three
indexes.

While the segment is active, all entries are in memory, and are written to the file in groups. If a
write fails, the next write also adds the missing entries, at the latest when the segment is sealed.
An index on a full disk therefore never prevents an append.

A sealed file consists of exactly its entries, which are read from the file. The file is not
memory-mapped, because a write to a mapped file kills the process if the disk is full. Entries are
cached only by the page cache.
"""

import errno
from functools import lru_cache
from typing import ClassVar

from ottla.storage.disk.disk_errors import is_disk_failure
from ottla.storage.disk.disk_seam import Disk, DiskFile, NotCachedError
from ottla.storage.segments.files import file_name

LOOK_UP_BLOCK_BYTES = 1 << 18
"""Number of bytes of a sealed index file that are loaded around an entry that is not in the page
cache. With fewer, a search waits for the disk more often. With more, bytes are read that are not
needed."""

WRITTEN_AT_ONCE = 32
"""Number of pending index entries at which an append writes the entries to a file that startup can
rebuild. With fewer, each append of a large batch costs a system call. With more, a single append
takes longer."""


SIZES_CACHED = 128
"""Number of cached results for different sizes of index files (`segment.index.bytes`)."""


@lru_cache(SIZES_CACHED)
def whole_entries_bytes(capacity_bytes: int, entry_bytes: int) -> int:
    """Return the largest size in bytes of whole entries that is at most `capacity_bytes`.

    The result is cached, so that all segments of the same settings share one number of 32 bytes.
    """
    return capacity_bytes - capacity_bytes % entry_bytes


@lru_cache(SIZES_CACHED)
def whole_entries_count(capacity_bytes: int, entry_bytes: int, reserved_count: int = 0) -> int:
    """Return the number of whole entries in `capacity_bytes`, less `reserved_count`. The result is
    cached like that of `whole_entries_bytes`."""
    return capacity_bytes // entry_bytes - reserved_count


_NO_ENTRIES = bytearray()
"""Bytes that active indexes without entries share. They always stay empty: the first entry is added
by assigning new bytes."""


class EntryFile:
    """One index file of a segment, either active (its entries are in `_memory`) or sealed (its
    entries are read from the file)."""

    __slots__ = (
        "_capacity_bytes",
        "_directory",
        "_disk",
        "_file",
        "_is_closed",
        "_is_extended",
        "_is_trimmed",
        "_memory",
        "_written_bytes",
        "base_offset",
        "count",
        "ending",
    )

    entry_bytes: ClassVar[int] = 8
    is_rebuilt: ClassVar[bool] = True
    """True if startup rebuilds this index file for every segment that is not sealed. The contents
    of the file are then irrelevant until `trim` has written the whole file."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, ending: str) -> None:
        self._disk = disk
        self._directory = directory
        self.base_offset = base_offset
        """Base offset of the segment. The file's name consists of it and of `ending`."""
        self.ending = ending
        self.count = 0
        self._file: DiskFile | None = None
        self._is_closed = False
        self._memory: bytearray | None = None
        self._written_bytes = 0
        self._capacity_bytes = 0
        self._is_extended = False
        """True if the index file already has its preallocated size."""
        self._is_trimmed = False
        """True if the index file is durable and contains exactly the entries of the index,
        unchanged since the last `trim`."""

    @property
    def path(self) -> str:
        """Path of the index file."""
        return f"{self._directory}/{file_name(self.base_offset, self.ending)}"

    @property
    def is_sealed(self) -> bool:
        """True if the index is sealed: its file is trimmed, and entries are read from the file
        instead of from memory."""
        return self._memory is None

    def begin(self, *, capacity_bytes: int = 0) -> None:
        """Make the index empty and active.

        When the first entry is added, the file is extended to `capacity_bytes` by a hole, as Kafka
        preallocates indexes.
        """
        self._memory = _NO_ENTRIES
        self.count = 0
        self._written_bytes = 0
        self._capacity_bytes = whole_entries_bytes(capacity_bytes, self.entry_bytes)
        self._open().set_size(0)
        self._is_extended = self._is_trimmed = False

    def open_sealed(self, size: int | None = None) -> int:
        """Open an index file as sealed. Returns its size in bytes, which may not be a multiple of
        the entry size.

        If the caller passes `size` (in bytes), the file is opened only when an entry is read.
        """
        self._memory = None
        if size is None:
            size = self._open().size_bytes
        self.count = size // self.entry_bytes
        self._is_trimmed = True
        return size

    def activate(self, *, capacity_bytes: int = 0) -> None:
        """Load a sealed index file into memory, so that entries can be appended again.

        A missing file is created with its first entry, or by `trim`. Raises NotCachedError, before
        anything is changed, if the file is not in the page cache.
        """
        if self._memory is not None:
            return
        size = self.count * self.entry_bytes
        self._memory = bytearray(self._handle().read_cached(0, size)) if size else _NO_ENTRIES
        self._written_bytes = size
        self._capacity_bytes = max(size, whole_entries_bytes(capacity_bytes, self.entry_bytes))
        self._is_extended = False

    def entry(self, index: int, size: int) -> bytes | bytearray:
        """Return the first `size` bytes of the index entry at position `index`, counted in entries
        from 0.

        Raises NotCachedError if the index is sealed and the bytes are not in the page cache.
        """
        at = index * self.entry_bytes
        if self._memory is not None:
            return self._memory[at : at + size]
        file = self._handle()
        try:
            return file.read_cached(at, size)
        except NotCachedError:
            position = at - at % LOOK_UP_BLOCK_BYTES
            size = max(LOOK_UP_BLOCK_BYTES, at + size - position)
            size = min(size, self.count * self.entry_bytes - position)
            raise NotCachedError(file, position, size) from None

    def check_cached(self) -> None:
        """Read all entries of the index, as `activate` does. Raises NotCachedError if an entry is
        not in the page cache."""
        if self.count and self._memory is None:
            self.entry(0, self.count * self.entry_bytes)

    def add(self, entry: bytes) -> None:
        """Append one index entry in memory; `write` adds it to the file."""
        memory = self._memory
        assert memory is not None
        if self.count:
            memory += entry
        else:
            self._memory = bytearray(entry)
        self.count += 1

    def write(self) -> None:
        """Write the index entries that the file does not contain yet. After an OSError, the next
        call writes them."""
        if self._memory is None or self._written_bytes == len(self._memory):
            return
        chunk = bytes(memoryview(self._memory)[self._written_bytes :])
        file = self._open()
        self._is_trimmed = False
        if not self._is_extended:
            file.set_size(max(len(self._memory), self._capacity_bytes))
            self._is_extended = True
        file.pwrite(self._written_bytes, [chunk])
        self._written_bytes += len(chunk)

    def write_if_possible(self) -> None:
        """Write the index entries that the file does not contain yet. If the disk is full, the next
        call tries again. Raises OSError if the disk failed."""
        try:
            self.write()
        except OSError as error:
            if is_disk_failure(error):
                raise

    def write_if_due(self) -> None:
        """Write pending index entries like `write_if_possible`. The first entry of the index is
        written immediately, later entries in groups.

        Only entries that startup can rebuild may be delayed; all other entries are written
        immediately.
        """
        assert self._memory is not None
        missing_bytes = len(self._memory) - self._written_bytes
        is_few = missing_bytes < WRITTEN_AT_ONCE * self.entry_bytes
        if not (self.is_rebuilt and self._is_extended and is_few):
            self.write_if_possible()

    def keep_first(self, count: int) -> None:
        """Drop all index entries except the first `count`, in memory only. The index must be
        active."""
        assert self._memory is not None
        assert 0 <= count <= self.count
        self.count = count
        size = count * self.entry_bytes
        if size < len(self._memory):
            self._is_trimmed = False
        del self._memory[size:]
        self._written_bytes = min(self._written_bytes, size)

    def cut_file(self) -> None:
        """Truncate the file of an active index to those entries that are still in memory, for
        example after `keep_first`."""
        if self._memory is None or self._is_trimmed:
            return
        file = self._open()
        file.set_size(len(self._memory))  # truncated first, so that the rest reads as a hole again
        if self._is_extended:
            file.set_size(max(len(self._memory), self._capacity_bytes))

    async def trim(self) -> None:
        """Make the index file durable with exactly the entries of the index. The entries also
        remain in memory until `seal`.

        All entries are written again, which repairs earlier failed writes. The file is truncated
        synchronously. A truncation in a worker thread could be delayed until the segment is active
        again after a truncation of the log, and would then remove newer entries.
        """
        if self._memory is None or self._is_closed:
            return
        if self._is_trimmed and self._written_bytes == len(self._memory):
            return
        self._written_bytes = 0
        self._is_extended = True
        self.write()
        file = self._open()
        file.renew_size(self.count * self.entry_bytes)
        self._is_extended = False
        await self._disk.fsync(file)

    async def flush(self) -> None:
        """Write the entries of an active index to its file and make them durable."""
        if self._memory and not self._is_closed:
            self.write()
            await self._disk.fsync(self._open())

    def seal(self) -> None:
        """Release the memory of a trimmed index. Its entries are from then on read from the
        file."""
        self._memory = None
        self._is_trimmed = True

    def close(self) -> None:
        """Close the index file if it is open."""
        self._is_closed = True
        if self._file is not None:
            self._file.close()
            self._file = None

    def _handle(self) -> DiskFile:
        """Return the handle of the index file. The handle is created if it does not exist; the file
        must exist on disk."""
        if self._file is None and not self._is_closed:
            self._file = self._disk.at(self.path)
            if self.is_rebuilt:
                self._file.expect_rewrite()
        return self._open()

    def _open(self) -> DiskFile:
        if self._is_closed:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        if self._file is None:
            self._file = self._disk.open(self.path, create=True)
            if self.is_rebuilt:
                self._file.expect_rewrite()
        return self._file
