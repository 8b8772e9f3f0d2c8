"""The machine's time and chance, behind the seams of `model/seams.py`."""

import random
import time
from uuid import UUID

RESERVED_IDS_END = 100
"""Kafka keeps the ids below this for meanings of its own (lost, unassigned, migrating, …)."""

_NANOSECONDS_PER_MS = 1_000_000


class RealClock:
    """The kernel's clocks."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary start; never goes back."""
        return time.monotonic_ns() // _NANOSECONDS_PER_MS

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return time.time_ns() // _NANOSECONDS_PER_MS


class RealRng:
    """The kernel's randomness: no two processes ever deal the same."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def random(self) -> float:
        """Return a float in `[0, 1)`."""
        return self._random.random()

    def below(self, bound: int) -> int:
        """Return an integer in `[0, bound)`."""
        return self._random.randrange(bound)

    def uuid(self) -> UUID:
        """Return a fresh random id that does not look like an option when Kafka prints it."""
        while True:
            fresh = UUID(int=self._random.getrandbits(128), version=4)
            if fresh.int >= RESERVED_IDS_END and not _is_printed_with_a_dash(fresh):
                return fresh


def _is_printed_with_a_dash(uuid: UUID) -> bool:
    """Return whether its base64 form begins with `-`, which command lines take for an option."""
    return uuid.bytes[0] >> 2 == 62  # the digit `-` of URL-safe base64
