"""Clock and random numbers of the machine; implements the interfaces in `model/seams.py`."""

import random
import time
from uuid import UUID

from ottla.model.compiled import mypyc_attr

RESERVED_IDS_END = 100
"""End of the range of UUIDs that Kafka reserves for special meanings (lost, unassigned, migrating
and so on)."""

_NANOSECONDS_PER_MS = 1_000_000


@mypyc_attr(allow_interpreted_subclasses=True)
class RealClock:
    """Clock of this machine: the monotonic clock and the wall clock of the kernel."""

    def monotonic_ms(self) -> int:
        """Return the monotonic time in milliseconds since an arbitrary moment. The value never
        decreases."""
        return time.monotonic_ns() // _NANOSECONDS_PER_MS

    def wall_ms(self) -> int:
        """Return the wall time in milliseconds since 1970."""
        return time.time_ns() // _NANOSECONDS_PER_MS


class RealRng:
    """Random number generator of the kernel, whose numbers differ in every process."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def random(self) -> float:
        """Return a random float in `[0, 1)`."""
        return self._random.random()

    def below(self, bound: int) -> int:
        """Return a random integer in `[0, bound)`."""
        return self._random.randrange(bound)

    def uuid(self) -> UUID:
        """Return a random UUID whose base64 form, which Kafka prints, does not start with a
        dash."""
        while True:
            fresh = UUID(int=self._random.getrandbits(128), version=4)
            if fresh.int >= RESERVED_IDS_END and not _is_printed_with_a_dash(fresh):
                return fresh


def _is_printed_with_a_dash(uuid: UUID) -> bool:
    """Return whether the base64 form of a UUID begins with `-`.  Command lines would parse it as an
    option."""
    return uuid.bytes[0] >> 2 == 62  # In URL-safe base64, `-` encodes the value 62.
