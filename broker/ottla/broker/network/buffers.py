"""Bytes of one connection: those that arrived and are not taken up, those still to be sent.

Pure.  Most requests are served where the socket's bytes were read to; what `HeldBytes` keeps is the
beginning of a frame whose rest is still on its way, and what waits behind a request that pauses
take-up.  Its buffer grows as bytes arrive, never because a length announced them, and is never
resized in place: views into an older one stay good.  `Output` holds bytes and file slices in order:
the driver asks for the next thing one system call can send, and reports how much went out.
"""

from collections import deque
from collections.abc import Callable

from ottla.broker.network.response_queue import Charge
from ottla.storage.slice import FileSlice
from ottla.wire.codec_types import Chunk

HELD_BYTES_MIN = 4096
"""Smallest buffer.  Lower means more copying when a frame comes in crumbs, higher more memory for
every connection that waits for the rest of a frame."""

GROWTH = 4
GROWTH_OF_LARGE = 2
LARGE_BYTES = 1 << 20
"""How much larger the next buffer is.  At most this times the bytes that arrived are allocated.
Growing faster copies less, growing slower holds less for who sends the beginning only."""


class HeldBytes:
    """A window `[start, end)` of one bytearray; empty, it holds no memory."""

    __slots__ = ("_buffer", "_start", "end")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start = 0
        self.end = 0
        """Where the window ends; 0 while nothing is held."""

    def __len__(self) -> int:
        """Return how many bytes are held."""
        return self.end - self._start

    @property
    def view(self) -> memoryview:
        """The bytes held, by reference."""
        return memoryview(self._buffer)[self._start : self.end]

    @property
    def capacity_bytes(self) -> int:
        """How much memory the buffer takes."""
        return len(self._buffer)

    def append(self, data: memoryview) -> None:
        """Hold a copy of more bytes."""
        size = len(data)
        if len(self._buffer) - self.end < size:
            self._move(max(len(self) + size, HELD_BYTES_MIN))
        self._buffer[self.end : self.end + size] = data
        self.end += size

    def window(self, wanted_bytes: int) -> memoryview:
        """Return free room behind the bytes held, to be received into, then told by `advance`.

        At most as much as makes `wanted_bytes` in all; less, or nothing, until `grow` was called.
        """
        missing_bytes = wanted_bytes - len(self)
        assert missing_bytes > 0
        return memoryview(self._buffer)[self.end : self.end + missing_bytes]

    def capacity_for(self, wanted_bytes: int) -> int:
        """Return the capacity with which some of `wanted_bytes` in all can be received."""
        if self.end < len(self._buffer):
            return len(self._buffer)
        held_bytes = len(self)
        growth = GROWTH if GROWTH * held_bytes <= LARGE_BYTES else GROWTH_OF_LARGE
        return min(wanted_bytes, max(growth * held_bytes, HELD_BYTES_MIN))

    def grow(self, capacity_bytes: int) -> None:
        """Go on in a buffer of what `capacity_for` returned."""
        if self.end == len(self._buffer):
            self._move(capacity_bytes)

    def advance(self, size: int) -> None:
        """Count bytes that were received into the window."""
        self.end += size
        assert self.end <= len(self._buffer)

    def consume(self, size: int) -> None:
        """Drop the first bytes; with none left, the buffer is given up."""
        self._start += size
        assert self._start <= self.end
        if self._start == self.end:
            self.clear()

    def clear(self) -> None:
        """Drop everything.  Views into the buffer keep it alive for themselves."""
        self._buffer = bytearray()
        self._start = self.end = 0

    def _move(self, capacity_bytes: int) -> None:
        """Go on in a new buffer."""
        held = self.view
        self._buffer = bytearray(capacity_bytes)
        self._start, self.end = 0, len(held)
        self._buffer[: self.end] = held


GATHER_COUNT_MAX = 64
"""Byte chunks of one gather write (the kernel takes 1024)."""

GATHER_BYTES_MAX = 512 * 1024
"""Bytes offered to one gather write.  Higher offers what the socket will not take anyway."""

JOIN_BYTES_MAX = 16 * 1024
"""Up to here several chunks are copied into one, file slices too: cheaper than a gather write's
vectors, and than a sendfile for each slice."""


class Output:
    """A queue of chunks whose first one may be partly sent."""

    __slots__ = ("_sent_of_first", "byte_count", "charge", "chunks")

    def __init__(self) -> None:
        self.charge: Charge | None = None
        """Pays for the time of writing: that of the response which was ready last."""
        self.chunks: deque[Chunk] = deque()
        self.byte_count = 0
        self._sent_of_first = 0

    def next_bytes(
        self, read: Callable[[FileSlice], bytes | bytearray | None]
    ) -> list[bytes | bytearray | memoryview]:
        """Return the byte chunks that go out next; empty when a file slice (or nothing) does.

        Slices so small that they are joined to what is around them are replaced by their bytes;
        `read` returns None for one that would make us wait.
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
        """Return what is left where that is one chunk of bytes, as most answers are."""
        if len(self.chunks) != 1:
            return None
        first = self.chunks[0]
        if not self._sent_of_first and isinstance(first, bytes):
            return first
        if not isinstance(first, (bytes, bytearray, memoryview)):
            return None
        return memoryview(first)[self._sent_of_first :] if self._sent_of_first else first

    def copy_into(self, room: memoryview, read: Callable[[FileSlice, int, memoryview], int]) -> int:
        """Copy what goes out next, bytes and slices alike; return how much.

        `read` copies of a slice, from an offset in it, into room; it may copy less.
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
        """Return the file slice that goes out next, and how much of it has gone already."""
        chunk = self.chunks[0]
        assert isinstance(chunk, FileSlice)
        return chunk, self._sent_of_first

    def on_sent(self, size: int) -> None:
        """Count bytes that went out, and drop the chunks that are done."""
        chunks = self.chunks
        if size == self.byte_count:  # as most sends do
            chunks.clear()
            self.byte_count = self._sent_of_first = 0
            return
        self.byte_count -= size
        assert self.byte_count >= 0
        left = size + self._sent_of_first
        while chunks and left >= len(chunks[0]):
            left -= len(chunks.popleft())
        self._sent_of_first = left

    def clear(self) -> None:
        """Drop everything: the connection has closed."""
        self.chunks.clear()
        self.byte_count = self._sent_of_first = 0
