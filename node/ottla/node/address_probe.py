"""Whether anything listens at an address: the sign by which a process is known to be gone.

Pure.  A kernel that answers for a port where nothing listens refuses the connection: the process
that listened there has ended.  Every other failure (no route, no name, no answer in time) may be
the network's, and says nothing of the process.

Exactly two implementations exist: the machine's (address_probe_driver.py) and the deterministic
world's.
"""

from enum import Enum
from typing import Protocol


class Probed(Enum):
    """What came of one attempt to connect."""

    ACCEPTED = "something listens there"
    REFUSED = "nothing listens there, at none of the host's addresses"
    UNKNOWN = "neither is known"


class Probe(Protocol):
    """Tries to connect, and closes the connection at once."""

    async def __call__(self, host: str, port: int, /) -> Probed:
        """Try it; raises nothing, and returns within `PROBE_TIMEOUT_MS`."""
        ...


PROBE_TIMEOUT_MS = 500
"""Longer learns nothing: a refusal takes a round trip.  Shorter misses that of a far host."""


async def probe_nothing(host: str, port: int, /) -> Probed:
    """Know of no address whether anything listens there."""
    return Probed.UNKNOWN


def outcome_of(tries: "list[Probed]") -> Probed:
    """Return the outcome for a host of several addresses: all must refuse, or one accept."""
    if Probed.ACCEPTED in tries:
        return Probed.ACCEPTED
    if tries and all(one is Probed.REFUSED for one in tries):
        return Probed.REFUSED
    return Probed.UNKNOWN
