"""The seams through which time and chance come in (the Disk seam lives in storage).

Each has exactly two implementations: the real one, and the deterministic world's.  Cores take
instants and ids as arguments; only drivers hold a seam.
"""

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
