"""A file that is only read, in blocks: what the tools that look at files are given.

Its size is taken once, so that a file which grows meanwhile is read up to where it ended, and no
length that stands in the file decides how much memory a reader takes.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Protocol

from ottla.model.errors import CorruptDataError
from ottla.model.limits import KIB, MIB
from ottla.wire.batch import Buffer

BLOCK_BYTES = MIB
"""Bytes read at once: smaller makes more calls, larger holds more for nothing."""

INDEX_BLOCK_BYTES = 64 * KIB
"""Bytes of an index read at once: most have few entries, in front of a hole of ten megabytes."""

SMALL_FILE_BYTES_MAX = 64 * MIB
"""Largest file that is read whole.  A snapshot of a million producers has 46 MB; more is refused
instead of taken into memory."""


class Readable(Protocol):
    """Bytes at positions."""

    @property
    def size_bytes(self) -> int:
        """Size of the file when it was opened."""
        ...

    def pread(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def skip_hole(self, position: int) -> int:
        """Return where the next bytes lie that may be other than zero; the size if none do."""
        ...


class BytesReadable:
    """Bytes that are in memory already."""

    def __init__(self, data: Buffer) -> None:
        self._data = memoryview(data)

    @property
    def size_bytes(self) -> int:
        """Count of the bytes."""
        return len(self._data)

    def pread(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        return bytes(self._data[position : position + size])

    def skip_hole(self, position: int) -> int:
        """Return the position: nothing is known of holes."""
        return position


def readable(data: Readable | Buffer) -> Readable:
    """Return bytes as a file; a file as it is."""
    if isinstance(data, bytes | bytearray | memoryview):
        return BytesReadable(data)
    return data


class Window:
    """The block of a file that was read last, for a walk from its start to its end."""

    def __init__(self, file: Readable, block_bytes: int = BLOCK_BYTES) -> None:
        self._file = file
        self._block_bytes = block_bytes
        self._block = b""
        self._block_at = 0
        self.size_bytes = file.size_bytes

    def bytes_at(self, position: int, size: int) -> memoryview:
        """Return up to `size` bytes, at most a block; fewer only at the end of the file."""
        assert size <= self._block_bytes
        end = min(position + size, self.size_bytes)
        if not self._block_at <= position <= end <= self._block_at + len(self._block):
            wanted = min(self._block_bytes, max(0, self.size_bytes - position))
            self._block = self._file.pread(position, wanted)
            self._block_at = position
            if len(self._block) < wanted:
                self.size_bytes = position + len(self._block)  # cut while it is read
        at = position - self._block_at
        return memoryview(self._block)[at : at + size]

    def blocks(self, position: int, end: int) -> Iterator[memoryview]:
        """Yield the bytes of a range, a block at a time."""
        while position < end:
            block = self.bytes_at(position, min(self._block_bytes, end - position))
            if not block:
                return
            yield block
            position += len(block)

    def first_nonzero(self, position: int) -> int | None:
        """Return where the first byte that is not zero lies, None if zeros follow to the end."""
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
    """Yield (place, fields) of each whole entry of an index file."""
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
    """Return the bytes of a small file.

    Raises CorruptDataError if it is larger than any file of its kind.
    """
    if file.size_bytes > SMALL_FILE_BYTES_MAX:
        raise CorruptDataError(f"its {file.size_bytes} bytes are too many for a file of its kind")
    return file.pread(0, file.size_bytes)
