"""Interfaces of time, randomness and the network (the interface of the disk is in storage).

Each interface has exactly two implementations: the real one, and one for simulations. Pure modules
receive times and ids as arguments; only drivers use these interfaces.
"""

from collections.abc import Awaitable
from typing import Protocol
from uuid import UUID


class Clock(Protocol):
    """A clock: `monotonic_ms` for durations and sessions, `wall_ms` for record timestamps."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary start. The value never decreases."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch. The value may jump in either direction."""
        ...


class Rng(Protocol):
    """A source of randomness: back-off jitter, placement, random ids."""

    def random(self) -> float:
        """Return a float in `[0, 1)`."""
        ...

    def below(self, bound: int) -> int:
        """Return an integer in `[0, bound)`; `bound` is at least 1."""
        ...

    def uuid(self) -> UUID:
        """Return a new random id (version 4, never a reserved one below 100)."""
        ...


class ByteStream(Protocol):
    """A byte stream to and from one peer. If the peer has closed it, calls raise OSError or the
    corresponding error of trio."""

    async def send_all(self, data: bytes, /) -> None:
        """Send all bytes. After a cancellation the number of bytes sent is unknown."""
        ...

    async def receive_some(self, max_bytes: int, /) -> bytes | bytearray:
        """Return received bytes, waiting for at least one. Returns no bytes if the peer has closed
        its side."""
        ...

    def receive_into(self, room: memoryview, /) -> Awaitable[int]:
        """Receive as `receive_some` does, but into the caller's buffer. Returns the number of
        bytes."""
        ...

    def abort(self) -> None:
        """Close at once, and wake up the peer and all waiting tasks. Closing twice is allowed."""
        ...

    async def aclose(self) -> None:
        """Close the stream; bytes that were sent are still delivered."""
        ...


class Transport(Protocol):
    """A source of connections to other machines."""

    async def connect(self, host: str, port: int) -> ByteStream:
        """Connect to an address, and return the stream. Raises OSError if nothing listens there."""
        ...
