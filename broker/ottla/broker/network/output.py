"""What one connection still has to send: bytes and file slices, in order.

Pure.  The driver asks for the next thing one system call can send, and tells how much went out.
"""

from collections import deque
from collections.abc import Callable

from ottla.storage.slice import FileSlice
from ottla.wire.codec_types import Chunk

GATHER_COUNT_MAX = 64
"""Byte chunks of one gather write (the kernel takes 1024)."""

GATHER_BYTES_MAX = 512 * 1024
"""Bytes offered to one gather write.  Higher offers what the socket will not take anyway."""

JOIN_BYTES_MAX = 16 * 1024
"""Up to here several chunks are copied into one, file slices too: cheaper than a gather write's
vectors, and than a sendfile for each slice."""


class Output:
    """A queue of chunks whose first one may be partly sent."""

    __slots__ = ("_sent_of_first", "byte_count", "chunks")

    def __init__(self) -> None:
        self.chunks: deque[Chunk] = deque()
        self.byte_count = 0
        self._sent_of_first = 0

    def next_bytes(
        self, read: Callable[[FileSlice], bytes | None]
    ) -> list[bytes | bytearray | memoryview]:
        """Return the byte chunks that go out next; empty when a file slice (or nothing) does.

        Slices so small that they are joined to what is around them are replaced by their bytes;
        `read` returns None for one that would make us wait.
        """
        first = self.chunks[0] if self.chunks else b""
        if len(self.chunks) == 1 and isinstance(first, bytes) and not self._sent_of_first:
            return [first]
        gathered: list[bytes | bytearray | memoryview] = []
        byte_count = 0
        for index, chunk in enumerate(self.chunks):
            if isinstance(chunk, FileSlice):
                is_small = byte_count + len(chunk) <= JOIN_BYTES_MAX
                data = read(chunk) if is_small else None
                if data is None:
                    break
                chunk = self.chunks[index] = data
            assert isinstance(chunk, (bytes, bytearray, memoryview))
            gathered.append(chunk)
            byte_count += len(chunk)
            if byte_count >= GATHER_BYTES_MAX or len(gathered) == GATHER_COUNT_MAX:
                break
        if gathered and self._sent_of_first:
            gathered[0] = memoryview(gathered[0])[self._sent_of_first :]
            byte_count -= self._sent_of_first
        if len(gathered) > 1 and byte_count <= JOIN_BYTES_MAX:
            return [b"".join(gathered)]
        return gathered

    def next_slice(self) -> tuple[FileSlice, int]:
        """Return the file slice that goes out next, and how much of it has gone already."""
        chunk = self.chunks[0]
        assert isinstance(chunk, FileSlice)
        return chunk, self._sent_of_first

    def on_sent(self, size: int) -> None:
        """Count bytes that went out, and drop the chunks that are done."""
        self.byte_count -= size
        assert self.byte_count >= 0
        chunks = self.chunks
        left = size + self._sent_of_first
        while chunks and left >= len(chunks[0]):
            left -= len(chunks.popleft())
        self._sent_of_first = left

    def clear(self) -> None:
        """Drop everything: the connection has closed."""
        self.chunks.clear()
        self.byte_count = self._sent_of_first = 0
