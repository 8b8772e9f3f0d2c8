"""The seams through which time, chance and other machines come in (the Disk seam lives in storage).

Each has exactly two implementations: the real one, and the deterministic world's.  Cores take
instants and ids as arguments; only drivers hold a seam.
"""

from collections.abc import Awaitable
from typing import Protocol
from uuid import UUID


class Clock(Protocol):
    """Tells the time: durations and sessions by `monotonic_ms`, record timestamps by `wall_ms`."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary start; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch; may jump either way."""
        ...


class Rng(Protocol):
    """Deals chance: back-off jitter, placement, random ids."""

    def random(self) -> float:
        """Return a float in `[0, 1)`."""
        ...

    def below(self, bound: int) -> int:
        """Return an integer in `[0, bound)`; `bound` is at least 1."""
        ...

    def uuid(self) -> UUID:
        """Return a fresh random id (version 4, never a reserved one: not below 100)."""
        ...


class ByteStream(Protocol):
    """Bytes to and from one peer.  A peer that is gone is an OSError or trio's error for it."""

    async def send_all(self, data: bytes, /) -> None:
        """Send all of it; when this is cancelled, nobody knows how much has left."""
        ...

    async def receive_some(self, max_bytes: int, /) -> bytes | bytearray:
        """Return what has come, waiting for at least one byte; empty when the peer has ended."""
        ...

    def receive_into(self, room: memoryview, /) -> Awaitable[int]:
        """Do what `receive_some` does in the caller's room; return how many bytes came."""
        ...

    def abort(self) -> None:
        """Close at once: whoever waits here is told, and so is the peer.  Twice is once."""
        ...

    async def aclose(self) -> None:
        """Close; what was sent still arrives."""
        ...


class Transport(Protocol):
    """Makes connections to other machines."""

    async def connect(self, host: str, port: int) -> ByteStream:
        """Connect; OSError when nobody listens there."""
        ...
