"""Interfaces of time, randomness and the network, which simulations replace. The interface of the
disk is in the package storage.

Each interface has exactly two implementations: the real one and the simulated one. Pure modules
receive times and ids as arguments. Only drivers use these interfaces.
"""

from collections.abc import Awaitable
from typing import Protocol
from uuid import UUID


class Clock(Protocol):
    """A clock. Durations and sessions use `monotonic_ms`, record timestamps use `wall_ms`."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary point in time. The value never decreases."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch. The value may jump in either direction."""
        ...


class Rng(Protocol):
    """A source of random numbers, used for retry jitter, replica placement and random ids."""

    def random(self) -> float:
        """Return a random float in `[0, 1)`."""
        ...

    def below(self, bound: int) -> int:
        """Return a random integer in `[0, bound)`. `bound` is at least 1."""
        ...

    def uuid(self) -> UUID:
        """Return a new random id (version 4, never a reserved one below 100)."""
        ...


class ByteStream(Protocol):
    """A byte stream to and from one peer. Methods raise OSError, or the corresponding error of
    trio, if the peer has closed the connection."""

    async def send_all(self, data: bytes, /) -> None:
        """Send all bytes. After a cancellation, the number of bytes that were sent is unknown."""
        ...

    async def receive_some(self, max_bytes: int, /) -> bytes | bytearray:
        """Wait for at least one byte and return the received bytes. Returns no bytes if the peer
        has closed its side."""
        ...

    def receive_into(self, room: memoryview, /) -> Awaitable[int]:
        """Wait for at least one byte and store the received bytes in `room`. Returns their number,
        which is 0 if the peer has closed its side."""
        ...

    def abort(self) -> None:
        """Close the connection at once. The peer and all waiting tasks notice it immediately. A
        second call has no effect."""
        ...

    async def aclose(self) -> None:
        """Close the stream. Bytes that were already sent are still delivered."""
        ...


class Transport(Protocol):
    """Interface of a factory of network connections to other machines."""

    async def connect(self, host: str, port: int) -> ByteStream:
        """Connect to an address, and return the stream. Raises OSError if no process listens
        there."""
        ...
