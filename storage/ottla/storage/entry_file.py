"""A file of fixed-size entries that only grows at its end: what all three indexes are made of.

While its segment is active all entries are in memory and, some at a time, written at their place; a
write that fails is made up for by the next, and at the latest when the segment is sealed, so an
index on a full disk never stops an append.  Sealed, the file is exactly its entries, and they are
read in place: no mapping (a mapped file kills the process when the disk is full), no cache of ours.
"""

import errno
from typing import ClassVar

from ottla.storage.disk_errors import is_disk_failure
from ottla.storage.disk_seam import Disk, DiskFile, NotCachedError

LOOK_UP_BLOCK_BYTES = 1 << 18
"""How much of a sealed file is brought in around an entry that is not cached.  Less makes a search
wait for the disk more often, more reads what it does not look at."""

WRITTEN_AT_ONCE = 32
"""Entries of a file that is rebuilt before an append writes them.  Less costs appends of large
batches a system call each, more leaves more to one append; a start rests on none of them."""


class EntryFile:
    """One index file, active (`_memory` holds it) or sealed."""

    __slots__ = (
        "_capacity_bytes",
        "_disk",
        "_file",
        "_is_closed",
        "_is_extended",
        "_is_trimmed",
        "_memory",
        "_written_bytes",
        "count",
        "path",
    )

    entry_bytes: ClassVar[int] = 8
    is_rebuilt: ClassVar[bool] = True
    """Whether a start that finds the file unsealed builds it again: nothing rests on it before
    `trim` has written all of it."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self.count = 0
        self._file: DiskFile | None = None
        self._is_closed = False
        self._memory: bytearray | None = None
        self._written_bytes = 0
        self._capacity_bytes = 0
        self._is_extended = False
        """Whether the file has its full size already."""
        self._is_trimmed = False
        """Whether the file is still what was sealed, durably."""

    @property
    def is_sealed(self) -> bool:
        """Whether the file is trimmed and read in place."""
        return self._memory is None

    def begin(self, *, capacity_bytes: int = 0) -> None:
        """Start empty and active.

        From its first entry on the file is a hole of `capacity_bytes`, as Kafka preallocates.
        """
        self._memory = bytearray()
        self.count = 0
        self._written_bytes = 0
        self._capacity_bytes = capacity_bytes - capacity_bytes % self.entry_bytes
        self._open().set_size(0)
        self._is_extended = self._is_trimmed = False

    def open_sealed(self, size: int | None = None) -> int:
        """Take a sealed file as it is; return its size, which may not fit whole entries.

        Where the size is known the file need not be opened yet.
        """
        self._memory = None
        if size is None:
            size = self._open().size_bytes
        self.count = size // self.entry_bytes
        self._is_trimmed = True
        return size

    def activate(self, *, capacity_bytes: int = 0) -> None:
        """Take a sealed file into memory to append again.

        One that is not there is made with its first entry, or as it is trimmed.  Raises
        NotCachedError before anything is changed if it is not in memory.
        """
        if self._memory is not None:
            return
        size = self.count * self.entry_bytes
        self._memory = bytearray(self._handle().read_cached(0, size) if size else b"")
        self._written_bytes = size
        self._capacity_bytes = max(size, capacity_bytes - capacity_bytes % self.entry_bytes)
        self._is_extended = False

    def entry(self, index: int, size: int) -> bytes | bytearray:
        """Return `size` bytes from the start of one entry.

        Raises NotCachedError if the file is sealed and they are not in memory.
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
        """Read what `activate` will.  Raises NotCachedError if that is not in memory."""
        if self.count and self._memory is None:
            self.entry(0, self.count * self.entry_bytes)

    def add(self, entry: bytes) -> None:
        """Append one entry in memory; `write` brings it to the file."""
        assert self._memory is not None
        assert len(entry) == self.entry_bytes
        self._memory += entry
        self.count += 1

    def write(self) -> None:
        """Write what the file lacks; OSError leaves it lacking."""
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
        """Write what the file lacks, or leave it to the next try; OSError when the disk failed."""
        try:
            self.write()
        except OSError as error:
            if is_disk_failure(error):
                raise

    def write_if_due(self) -> None:
        """Do as `write_if_possible` for the first entry, and for some at a time after that.

        Only what a start rebuilds may wait; the rest is written at once.
        """
        assert self._memory is not None
        missing_bytes = len(self._memory) - self._written_bytes
        is_few = missing_bytes < WRITTEN_AT_ONCE * self.entry_bytes
        if not (self.is_rebuilt and self._is_extended and is_few):
            self.write_if_possible()

    def keep_first(self, count: int) -> None:
        """Drop all entries but the first `count`, in memory; the file must be active."""
        assert self._memory is not None
        assert 0 <= count <= self.count
        self.count = count
        size = count * self.entry_bytes
        if size < len(self._memory):
            self._is_trimmed = False
        del self._memory[size:]
        self._written_bytes = min(self._written_bytes, size)

    def cut_file(self) -> None:
        """Cut an active file to the entries there are."""
        if self._memory is None or self._is_trimmed:
            return
        file = self._open()
        file.set_size(len(self._memory))  # first cut, so that what is beyond reads as a hole again
        if self._is_extended:
            file.set_size(max(len(self._memory), self._capacity_bytes))

    async def trim(self) -> None:
        """Make the file exactly its entries, durably; it stays in memory until `seal`.

        All of it is written again, which makes good whatever an earlier write missed.  The file is
        cut here and now: a cut left to a worker may come after the entries that were added to a
        segment which a truncation made active again meanwhile.
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
        """Make the entries of an active file durable."""
        if self._memory and not self._is_closed:
            self.write()
            await self._disk.fsync(self._open())

    def seal(self) -> None:
        """Let go of the memory of a trimmed file."""
        self._memory = None
        self._is_trimmed = True

    def close(self) -> None:
        """Close the file, if it is open."""
        self._is_closed = True
        if self._file is not None:
            self._file.close()
            self._file = None

    def _handle(self) -> DiskFile:
        """Return the file, which is there and need not be open yet."""
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
