"""A file on the simulated disk: as processes see it, on the device, and in the page cache.
Everything is in memory: the module does no I/O."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ottla.model.limits import INT64_MAX
from ottla.model.seams import Rng

SECTOR_BYTES = 512
"""Size in bytes of a sector, the unit that a device writes atomically."""

PAGE_BYTES = 4096
"""Size in bytes of a page, the unit of the page cache."""


class ColdReadError(AssertionError):
    """Raised when a read would have blocked the event loop until the simulated disk responded."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write of bytes at a position of a simulated file, recorded as an unflushed change."""

    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    """A change of a simulated file's size, recorded as an unflushed change."""

    size: int


_HOLE = bytes(256 << 10)
"""Block of zeros with which nodes reserve disk space. Written at the end of a simulated file, it
becomes a hole, which uses no memory."""


class Bytes:
    """Content of a simulated file. A hole at its end, such as the unused end of a preallocated
    index, uses no memory."""

    __slots__ = ("data", "size")

    def __init__(self, data: bytes | bytearray = b"", size: int = 0) -> None:
        self.data = bytearray(data)
        self.size = size

    def apply(self, operation: Write | Resize) -> None:
        """Apply a write or a resize to the file's content."""
        if isinstance(operation, Resize):
            del self.data[operation.size :]
            self.size = operation.size
        elif operation.data:
            position, data = operation.position, operation.data
            end = position + len(data)
            gap_bytes = position - len(self.data)
            if gap_bytes < 0 or data != _HOLE:
                self.data.extend(bytes(max(0, gap_bytes)))
                self.data[position:end] = data
            self.size = max(self.size, end)

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes of the file's content from byte `position` on."""
        found = bytes(self.data[position : position + size])
        return found + bytes(max(0, min(size, self.size - position) - len(found)))


class Inode:
    """A simulated file: its content as processes see it, its content on the device, and the
    unflushed changes."""

    __slots__ = (
        "allocated_bytes",
        "cold_pages",
        "content",
        "durable",
        "flushed_count",
        "has_failed_fsync",
        "modified_ms",
        "pending",
    )

    def __init__(self) -> None:
        self.allocated_bytes = 0
        """Number of bytes from the start of the file to the last byte written. A hole at the end of
        the file uses no space."""
        self.content = Bytes()
        self.durable = Bytes()
        self.pending: list[Write | Resize] = []
        self.flushed_count = 0
        """Number of the file's changes (writes and resizes) that are durable. With this number,
        overlapping fsyncs determine the changes that each of them has flushed."""
        self.cold_pages: set[int] = set()
        """Numbers of the file's pages that are not in the page cache."""
        self.modified_ms = INT64_MAX
        self.has_failed_fsync = False

    def evict(self) -> None:
        """Drop all pages of the file from the page cache."""
        self.cold_pages = set(_pages(0, len(self.content.data)))

    def bring_in(self, position: int, size: int) -> None:
        """Load the pages of a byte range of the file into the page cache."""
        if self.cold_pages:
            self.cold_pages.difference_update(_pages(position, size))

    def is_cold(self, position: int, size: int) -> bool:
        """Return whether any page of a byte range of the file is missing from the page cache."""
        return bool(self.cold_pages) and not self.cold_pages.isdisjoint(
            _pages(position, min(size, self.content.size - position))
        )

    def change(self, operation: Write | Resize) -> None:
        """Apply a write or a resize to the content that processes see. It is durable only after
        `flush`."""
        self.content.apply(operation)
        self.pending.append(operation)
        if isinstance(operation, Resize):
            self.allocated_bytes = min(self.allocated_bytes, operation.size)
        else:
            end = operation.position + len(operation.data)
            self.allocated_bytes = max(self.allocated_bytes, end)

    def flush(self, count: int) -> None:
        """Make the first `count` unflushed changes of the file durable."""
        for operation in self.pending[:count]:
            self.durable.apply(operation)
        del self.pending[:count]
        self.flushed_count += count

    def forget_failure(self) -> bool:
        """After a failed fsync, treat the file's unflushed changes as flushed, although they are
        not durable. Returns whether there were such changes."""
        is_lost = self.has_failed_fsync and bool(self.pending)
        if self.has_failed_fsync:
            self.flushed_count += len(self.pending)
            self.pending.clear()
            self.has_failed_fsync = False
        return is_lost

    def forget_flushed(self) -> None:
        """Evict the file's flushed pages from the simulated page cache: reads return the data that
        the disk really has, with the unflushed changes applied. The file's size does not change."""
        size = self.content.size
        self.content = Bytes(self.durable.data, self.durable.size)
        for operation in self.pending:
            self.content.apply(operation)
        self.content.apply(Resize(size))

    def lose_power(self, rng: Rng) -> None:
        """Keep a random part of the file's unflushed changes and lose the rest, as a power cut
        does.

        The kept changes are one of these:

        - a prefix, possibly followed by a torn write;
        - an arbitrary subset of the changes;
        - an arbitrary subset of the written sectors.

        A file system with delayed allocation writes size and data separately. The file may
        therefore keep its full size, with zeros in place of lost bytes.
        """
        size = self.content.size
        match rng.below(3):
            case 0:
                self._keep_first(rng)
            case 1:
                self._keep_any(rng, self.pending)
            case _:
                self._keep_any(rng, [part for one in self.pending for part in _sectors(one)])
        if self.pending and size > self.durable.size and rng.below(4) == 0:
            self.durable.size = size
        self.flushed_count += len(self.pending)
        self.pending.clear()
        self.content = Bytes(self.durable.data, self.durable.size)
        self.allocated_bytes = min(self.allocated_bytes, self.content.size)
        self.evict()
        self.has_failed_fsync = False

    def _keep_first(self, rng: Rng) -> None:
        kept_count = rng.below(len(self.pending) + 1)
        for operation in self.pending[:kept_count]:
            self.durable.apply(operation)
        for operation in self.pending[kept_count : kept_count + 1]:
            if isinstance(operation, Write):
                torn = operation.data[: rng.below(len(operation.data) + 1)]
                self.durable.apply(Write(operation.position, torn))

    def _keep_any(self, rng: Rng, changes: Iterable[Write | Resize]) -> None:
        for operation in changes:
            if rng.below(2):
                self.durable.apply(operation)


def _pages(position: int, size: int) -> range:
    return range(position // PAGE_BYTES, -(-(position + size) // PAGE_BYTES))


def _sectors(operation: Write | Resize) -> Iterator[Write | Resize]:
    """Yield the parts of a change to a file that a device writes atomically: the sectors of a
    write, or a resize as a whole."""
    if isinstance(operation, Resize):
        yield operation
        return
    position, data = operation.position, operation.data
    while data:
        size = SECTOR_BYTES - position % SECTOR_BYTES
        yield Write(position, data[:size])
        position, data = position + size, data[size:]
