"""A file of the world's disk: what processes see, what the device holds, what lies in memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ottla.model.limits import INT64_MAX
from ottla.model.seams import Rng

SECTOR_BYTES = 512
"""What a device writes whole or not at all."""

PAGE_BYTES = 4096
"""What memory holds of a file, or does not, as one."""


class ColdReadError(AssertionError):
    """A read that would have held the loop until the disk answered."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes that were written, and where."""

    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    """A size that was set."""

    size: int


class Bytes:
    """What a file holds; a hole at its end, such as of a preallocated index, takes no memory."""

    __slots__ = ("data", "size")

    def __init__(self, data: bytes | bytearray = b"", size: int = 0) -> None:
        self.data = bytearray(data)
        self.size = size

    def apply(self, operation: Write | Resize) -> None:
        """Do what was asked of the file."""
        if isinstance(operation, Resize):
            del self.data[operation.size :]
            self.size = operation.size
        elif operation.data:
            end = operation.position + len(operation.data)
            self.data.extend(bytes(max(0, operation.position - len(self.data))))
            self.data[operation.position : end] = operation.data
            self.size = max(self.size, end)

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        found = bytes(self.data[position : position + size])
        return found + bytes(max(0, min(size, self.size - position) - len(found)))


class Inode:
    """A file's bytes: as processes see them, as the device holds them, and what lies between."""

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
        """Bytes up to the last one written: a hole at the end takes no space."""
        self.content = Bytes()
        self.durable = Bytes()
        self.pending: list[Write | Resize] = []
        self.flushed_count = 0
        """Changes that are durable, so that overlapping fsyncs know which one took what."""
        self.cold_pages: set[int] = set()
        """Numbers of the pages that are not in memory."""
        self.modified_ms = INT64_MAX
        self.has_failed_fsync = False

    def evict(self) -> None:
        """Take all pages from memory."""
        self.cold_pages = set(_pages(0, len(self.content.data)))

    def bring_in(self, position: int, size: int) -> None:
        """Take the pages of a range into memory."""
        if self.cold_pages:
            self.cold_pages.difference_update(_pages(position, size))

    def is_cold(self, position: int, size: int) -> bool:
        """Return whether some page of a range is not in memory."""
        return bool(self.cold_pages) and not self.cold_pages.isdisjoint(
            _pages(position, min(size, self.content.size - position))
        )

    def change(self, operation: Write | Resize) -> None:
        """Do what was asked; it is durable only after `flush`."""
        self.content.apply(operation)
        self.pending.append(operation)
        if isinstance(operation, Resize):
            self.allocated_bytes = min(self.allocated_bytes, operation.size)
        else:
            end = operation.position + len(operation.data)
            self.allocated_bytes = max(self.allocated_bytes, end)

    def flush(self, count: int) -> None:
        """Make the first `count` changes durable."""
        for operation in self.pending[:count]:
            self.durable.apply(operation)
        del self.pending[:count]
        self.flushed_count += count

    def forget_failure(self) -> bool:
        """Count what an fsync could not write as flushed, which it is not; return whether any."""
        is_lost = self.has_failed_fsync and bool(self.pending)
        if self.has_failed_fsync:
            self.flushed_count += len(self.pending)
            self.pending.clear()
            self.has_failed_fsync = False
        return is_lost

    def forget_flushed(self) -> None:
        """Show what is durable, and what waits to be; the size stays as it is seen."""
        size = self.content.size
        self.content = Bytes(self.durable.data, self.durable.size)
        for operation in self.pending:
            self.content.apply(operation)
        self.content.apply(Resize(size))

    def lose_power(self, rng: Rng) -> None:
        """Keep what chance keeps of the changes that were not flushed.

        Of the changes a prefix whose last write is torn, or any of them, or any of their sectors.
        The size may be the one that was seen, with zeros where bytes are lost: a file system that
        allocates late writes the two apart.
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
    """Yield a change in the parts that a device writes one by one."""
    if isinstance(operation, Resize):
        yield operation
        return
    position, data = operation.position, operation.data
    while data:
        size = SECTOR_BYTES - position % SECTOR_BYTES
        yield Write(position, data[:size])
        position, data = position + size, data[size:]
