"""Bytes of one connection that arrived and are not taken up yet.

Pure.  Most requests never come here: they are served where the socket's bytes were read to.  What
stays is the beginning of a frame whose rest is still on its way, and what waits behind a request
that pauses take-up.  The buffer grows as bytes arrive, never because a length announced them, and
is never resized in place: views into an older one stay good.
"""

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

    __slots__ = ("_buffer", "_end", "_start")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start = 0
        self._end = 0

    def __len__(self) -> int:
        """Return how many bytes are held."""
        return self._end - self._start

    @property
    def view(self) -> memoryview:
        """The bytes held, by reference."""
        return memoryview(self._buffer)[self._start : self._end]

    @property
    def capacity_bytes(self) -> int:
        """How much memory the buffer takes."""
        return len(self._buffer)

    def append(self, data: memoryview) -> None:
        """Hold a copy of more bytes."""
        size = len(data)
        if len(self._buffer) - self._end < size:
            self._move(max(len(self) + size, HELD_BYTES_MIN))
        self._buffer[self._end : self._end + size] = data
        self._end += size

    def window(self, wanted_bytes: int) -> memoryview:
        """Return free room behind the bytes held, to be received into, then told by `advance`.

        At most as much as makes `wanted_bytes` in all; less, or nothing, until `grow` was called.
        """
        missing_bytes = wanted_bytes - len(self)
        assert missing_bytes > 0
        return memoryview(self._buffer)[self._end : self._end + missing_bytes]

    def capacity_for(self, wanted_bytes: int) -> int:
        """Return the capacity with which some of `wanted_bytes` in all can be received."""
        if self._end < len(self._buffer):
            return len(self._buffer)
        held_bytes = len(self)
        growth = GROWTH if GROWTH * held_bytes <= LARGE_BYTES else GROWTH_OF_LARGE
        return min(wanted_bytes, max(growth * held_bytes, HELD_BYTES_MIN))

    def grow(self, capacity_bytes: int) -> None:
        """Go on in a buffer of what `capacity_for` returned."""
        if self._end == len(self._buffer):
            self._move(capacity_bytes)

    def advance(self, size: int) -> None:
        """Count bytes that were received into the window."""
        self._end += size
        assert self._end <= len(self._buffer)

    def consume(self, size: int) -> None:
        """Drop the first bytes; with none left, the buffer is given up."""
        self._start += size
        assert self._start <= self._end
        if self._start == self._end:
            self.clear()

    def clear(self) -> None:
        """Drop everything.  Views into the buffer keep it alive for themselves."""
        self._buffer = bytearray()
        self._start = self._end = 0

    def _move(self, capacity_bytes: int) -> None:
        """Go on in a new buffer."""
        held = self.view
        self._buffer = bytearray(capacity_bytes)
        self._start, self._end = 0, len(held)
        self._buffer[: self._end] = held
