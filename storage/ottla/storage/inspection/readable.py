"""A read-only file, read in blocks, for inspection tools.

The size of the file is determined once, when it is opened. A file that grows later is therefore
read up to its former end. No length field inside the file decides how much memory a reader uses.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Protocol

from ottla.model.errors import CorruptDataError
from ottla.model.limits import KIB, MIB
from ottla.wire.batch import Buffer

BLOCK_BYTES = MIB
"""Number of bytes of a file that inspection tools read at once. Smaller reads need more calls;
larger ones use memory without benefit."""

INDEX_BLOCK_BYTES = 64 * KIB
"""Number of bytes of an index file that inspection tools read at once. Most indexes have few
entries, followed by a hole of ten megabytes."""

SMALL_FILE_BYTES_MAX = 64 * MIB
"""Maximum size in bytes of a file that inspection tools read as a whole. A snapshot of a million
producers has 46 MB. With a smaller limit, valid files are refused. With a larger one, a corrupt
file may use more memory."""


class Readable(Protocol):
    """Interface of a read-only file, or of bytes in memory, that can be read at any position."""

    @property
    def size_bytes(self) -> int:
        """Size of the file in bytes when it was opened."""
        ...

    def pread(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes of the file from `position`. Fewer are returned only at the end
        of the file."""
        ...

    def skip_hole(self, position: int) -> int:
        """Return the next position at or after `position` that may contain nonzero bytes, or the
        file size if no such position exists."""
        ...


class BytesReadable:
    """Bytes in memory, which can be read like a file; implements `Readable`."""

    def __init__(self, data: Buffer) -> None:
        self._data = memoryview(data)

    @property
    def size_bytes(self) -> int:
        """Number of bytes in memory, which count as the file's size."""
        return len(self._data)

    def pread(self, position: int, size: int) -> bytes:
        """Return up to `size` of the bytes in memory from `position` on."""
        return bytes(self._data[position : position + size])

    def skip_hole(self, position: int) -> int:
        """Return the position unchanged: bytes in memory have no holes."""
        return position


def readable(data: Readable | Buffer) -> Readable:
    """Return `data` as a `Readable`: bytes are wrapped, and a `Readable` is returned unchanged."""
    if isinstance(data, bytes | bytearray | memoryview):
        return BytesReadable(data)
    return data


class Window:
    """Cache of the block that was last read from a file, for reading the file from its start to its
    end."""

    def __init__(self, file: Readable, block_bytes: int = BLOCK_BYTES) -> None:
        self._file = file
        self._block_bytes = block_bytes
        self._block = b""
        self._block_at = 0
        self.size_bytes = file.size_bytes

    def bytes_at(self, position: int, size: int) -> memoryview:
        """Return up to `size` bytes of the file from `position`, at most one block. Fewer are
        returned only at the end of the file."""
        assert size <= self._block_bytes
        end = min(position + size, self.size_bytes)
        if not self._block_at <= position <= end <= self._block_at + len(self._block):
            wanted = min(self._block_bytes, max(0, self.size_bytes - position))
            self._block = self._file.pread(position, wanted)
            self._block_at = position
            if len(self._block) < wanted:
                self.size_bytes = position + len(self._block)  # truncated during the walk
        at = position - self._block_at
        return memoryview(self._block)[at : at + size]

    def blocks(self, position: int, end: int) -> Iterator[memoryview]:
        """Yield the bytes of the file from `position` to `end`, in blocks."""
        while position < end:
            block = self.bytes_at(position, min(self._block_bytes, end - position))
            if not block:
                return
            yield block
            position += len(block)

    def first_nonzero(self, position: int) -> int | None:
        """Return the position of the first nonzero byte at or after `position`, or None if only
        zeros follow."""
        while (position := self._file.skip_hole(position)) < self.size_bytes:
            block = bytes(self.bytes_at(position, self._block_bytes))
            if not block:
                return None
            kept = len(block.lstrip(b"\0"))
            if kept:
                return position + len(block) - kept
            position += len(block)
        return None


def entries(file: Readable, entry: Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield each complete entry of an index file: its position in bytes, and its fields."""
    window = Window(file, INDEX_BLOCK_BYTES)
    at = 0
    step = INDEX_BLOCK_BYTES - INDEX_BLOCK_BYTES % entry.size
    while at + entry.size <= window.size_bytes:
        block = window.bytes_at(at, step)
        whole = len(block) - len(block) % entry.size
        if not whole:
            return
        for number, fields in enumerate(entry.iter_unpack(block[:whole])):
            yield at + number * entry.size, fields
        at += whole


def whole_file(file: Readable) -> bytes:
    """Return all bytes of a small file.

    Raises CorruptDataError if the file is larger than any valid file of its kind.
    """
    if file.size_bytes > SMALL_FILE_BYTES_MAX:
        raise CorruptDataError(f"its {file.size_bytes} bytes are too many for a file of its kind")
    return file.pread(0, file.size_bytes)
