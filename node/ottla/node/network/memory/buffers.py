"""Buffers of one connection: received bytes that are not served yet, and output that is not sent
yet.

Pure. Most requests are served in the buffer into which the socket was read.

`InputWindow` stores the start of an incomplete frame, and the bytes behind a request that pauses
the connection. Its buffer grows as bytes arrive, never because a frame header announced a length.
The buffer is never resized in place, so that views into an older buffer stay valid.

`OutputBuffer` stores bytes and file slices in order. The driver sends the next part that one system
call can send, and reports the number of bytes sent.
"""

from collections import deque
from collections.abc import Callable

from ottla.storage.disk.slice import FileSlice
from ottla.wire.codec_types import Chunk

HELD_BYTES_MIN = 4096
"""Minimum size in bytes of a connection's receive buffer. With a smaller size, more bytes are
copied when a frame arrives in small pieces. A larger size takes more memory for every connection
with an incomplete frame."""

GROWTH = 4
GROWTH_OF_LARGE = 2
LARGE_BYTES = 1 << 20
"""Size in bytes above which a receive buffer grows by the factor GROWTH_OF_LARGE. Smaller buffers
grow by the factor GROWTH.

At most the factor times the received bytes is allocated. With larger factors, fewer bytes are
copied. With smaller ones, clients that send only the start of a frame occupy less memory.
"""


class InputWindow:
    """Received bytes of a connection, in the window `[start, end)` of one bytearray. The window
    takes no memory while empty."""

    __slots__ = ("_buffer", "_start", "end")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start = 0
        self.end = 0
        """Index of the end of the received bytes in the buffer; 0 while there is no buffer."""

    def __len__(self) -> int:
        """Return the number of bytes that were received and not served yet."""
        return self.end - self._start

    @property
    def view(self) -> memoryview:
        """View of the connection's received bytes, without a copy."""
        return memoryview(self._buffer)[self._start : self.end]

    @property
    def capacity_bytes(self) -> int:
        """Size of the receive buffer in bytes."""
        return len(self._buffer)

    def append(self, data: memoryview) -> None:
        """Append a copy of received bytes to the window of bytes that are not served yet."""
        size = len(data)
        if len(self._buffer) - self.end < size:
            self._move(max(len(self) + size, HELD_BYTES_MIN))
        self._buffer[self.end : self.end + size] = data
        self.end += size

    def window(self, wanted_bytes: int) -> memoryview:
        """Return the free space of the buffer behind the received bytes. The caller reads from the
        socket into this space, and then calls `advance` with the number of received bytes.

        Once the whole space is filled, the buffer contains at most `wanted_bytes`. The space may be
        smaller, or empty, until `grow` is called.
        """
        missing_bytes = wanted_bytes - len(self)
        assert missing_bytes > 0
        return memoryview(self._buffer)[self.end : self.end + missing_bytes]

    def capacity_for(self, wanted_bytes: int) -> int:
        """Return the next size of the receive buffer in bytes. The buffer grows step by step
        towards a total of `wanted_bytes`."""
        if self.end < len(self._buffer):
            return len(self._buffer)
        held_bytes = len(self)
        growth = GROWTH if GROWTH * held_bytes <= LARGE_BYTES else GROWTH_OF_LARGE
        return min(wanted_bytes, max(growth * held_bytes, HELD_BYTES_MIN))

    def grow(self, capacity_bytes: int) -> None:
        """Move the received bytes to a larger buffer, of the size that `capacity_for` returned."""
        if self.end == len(self._buffer):
            self._move(capacity_bytes)

    def advance(self, size: int) -> None:
        """Extend the window by the bytes that were received into the space returned by `window`."""
        self.end += size
        assert self.end <= len(self._buffer)

    def consume(self, size: int) -> None:
        """Drop the first `size` received bytes. Releases the buffer if no received bytes are
        left."""
        self._start += size
        assert self._start <= self.end
        if self._start == self.end:
            self.clear()

    def clear(self) -> None:
        """Drop all received bytes and the buffer. Views into the buffer keep it alive."""
        self._buffer = bytearray()
        self._start = self.end = 0

    def _move(self, capacity_bytes: int) -> None:
        """Copy the received bytes to a new receive buffer of `capacity_bytes`."""
        held = self.view
        self._buffer = bytearray(capacity_bytes)
        self._start, self.end = 0, len(held)
        self._buffer[: self.end] = held


GATHER_COUNT_MAX = 64
"""Maximum number of byte chunks in one gather write to a socket (the kernel accepts 1024)."""

GATHER_BYTES_MAX = 512 * 1024
"""Number of bytes at which no further chunk is added to one gather write to a socket. A socket
accepts no larger number in one call."""

JOIN_BYTES_MAX = 16 * 1024
"""Size in bytes up to which several output chunks, including slices of log files, are copied into
one. Up to this size, copying is cheaper than the vectors of a gather write, or a sendfile for each
slice."""


class OutputBuffer:
    """Queue of output chunks of one connection, bytes and file slices. The first chunk may be
    partly sent."""

    __slots__ = ("_sent_of_first", "byte_count", "chunks", "has_slices", "one_piece_bytes")

    def __init__(self) -> None:
        self.chunks: deque[Chunk] = deque()
        self.byte_count = 0
        self.one_piece_bytes = 0
        """Total bytes of the responses without records that were added since the output was last
        empty. Each of them is a single chunk of bytes."""
        self.has_slices = False
        """True if a response with records was added since the output was last empty. Its chunks may
        be file slices."""
        self._sent_of_first = 0

    def next_bytes(
        self, read: Callable[[FileSlice], bytes | bytearray | None]
    ) -> list[bytes | bytearray | memoryview]:
        """Return the byte chunks of the output to send next. The list is empty if a file slice is
        next or the queue is empty.

        Small slices next to bytes are read and joined to them. `read` returns None for a slice
        whose read would block.
        """
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

    def only_bytes(self) -> bytes | bytearray | memoryview | None:
        """Return the connection's output as a single chunk of bytes: the output of most
        connections is one response, or a few small ones without records, which are joined. Returns
        None for other output."""
        chunks = self.chunks
        if len(chunks) != 1:
            if self.has_slices or self._sent_of_first or self.byte_count > JOIN_BYTES_MAX:
                return None
            return b"".join(chunks)  # type: ignore[arg-type]  # only bytes, without slices
        first = chunks[0]
        if not self._sent_of_first and isinstance(first, bytes):
            return first
        if not isinstance(first, (bytes, bytearray, memoryview)):
            return None
        return memoryview(first)[self._sent_of_first :] if self._sent_of_first else first

    def framed_slice(self) -> tuple[bytes, FileSlice, bytes] | None:
        """Return the connection's output if it is a single response with a file slice. The result
        has three parts: the bytes before the slice, the slice, and the bytes after it. Returns None
        for other output, and if a part of the output was already sent."""
        if len(self.chunks) != 3 or self._sent_of_first:
            return None
        start, piece, end = self.chunks
        if not isinstance(start, bytes) or not isinstance(end, bytes):
            return None
        return (start, piece, end) if isinstance(piece, FileSlice) else None

    def copy_into(self, room: memoryview, read: Callable[[FileSlice, int, memoryview], int]) -> int:
        """Copy the output to send next into `room`, both bytes and file slices. Returns the number
        of copied bytes.

        `read` is a function that copies bytes of a slice, from an offset in the slice on, into
        memory. It may copy fewer bytes than requested.
        """
        at = 0
        sent_before = self._sent_of_first
        for chunk in self.chunks:
            left = len(chunk) - sent_before
            part = room[at : at + left]
            if isinstance(chunk, FileSlice):
                copied = read(chunk, sent_before, part)
            else:
                assert isinstance(chunk, (bytes, bytearray, memoryview))
                copied = len(part)
                part[:] = memoryview(chunk)[sent_before : sent_before + copied]
            at += copied
            if copied < left or at == len(room):
                break
            sent_before = 0
        return at

    def next_slice(self) -> tuple[FileSlice, int]:
        """Return the file slice that is next in the output, and the number of the slice's bytes
        already sent."""
        chunk = self.chunks[0]
        assert isinstance(chunk, FileSlice)
        return chunk, self._sent_of_first

    def on_sent(self, size: int) -> None:
        """Count sent bytes of the output, and drop the chunks that are sent completely."""
        chunks = self.chunks
        if size == self.byte_count:  # The case of most sends. As `clear` does, without the call.
            chunks.clear()
            self.byte_count = self.one_piece_bytes = self._sent_of_first = 0
            self.has_slices = False
            return
        self.byte_count -= size
        assert self.byte_count >= 0
        left = size + self._sent_of_first
        while chunks and left >= len(chunks[0]):
            left -= len(chunks.popleft())
        self._sent_of_first = left

    def clear(self) -> None:
        """Drop all output: it is sent, or the connection is closed."""
        self.chunks.clear()
        self.byte_count = self.one_piece_bytes = self._sent_of_first = 0
        self.has_slices = False
