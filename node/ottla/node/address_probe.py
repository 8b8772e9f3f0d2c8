"""Probe of a peer's address, to detect that the peer's process has ended.

Pure. A kernel refuses a connection to a port on which no process listens. A refusal therefore
proves that the process has ended that had listened there. Any other failure (no route, no name, no
response in time) may be caused by the network, and proves nothing about the process.

There are exactly two implementations: one for a real machine (address_probe_driver.py) and one for
the simulation.
"""

from enum import Enum
from typing import Protocol


class ProbeResult(Enum):
    """Result of probing a peer's address: the connection was accepted, it was refused, or the
    result is unknown."""

    ACCEPTED = "something listens there"
    REFUSED = "nothing listens there, at none of the host's addresses"
    UNKNOWN = "neither is known"


class Probe(Protocol):
    """Interface of a function that connects once to a peer's address, and closes the connection
    immediately."""

    async def __call__(self, host: str, port: int, /) -> ProbeResult:
        """Connect to a peer's address once, to detect whether its process has ended. Raises
        nothing, and returns within `PROBE_TIMEOUT_MS`."""
        ...


PROBE_TIMEOUT_MS = 500
"""Timeout in milliseconds of a probe (one connection attempt to a peer's address). A refusal
arrives within one round trip, so a longer timeout has no benefit; a shorter one misses the refusal
of a distant host."""


async def probe_nothing(host: str, port: int, /) -> ProbeResult:
    """Return an unknown result for any address. Used where no connection can be attempted."""
    return ProbeResult.UNKNOWN


def outcome_of(tries: "list[ProbeResult]") -> ProbeResult:
    """Return the result of probing a host, combined from the results of its addresses.

    The host accepts if at least one address accepts. It refuses only if all addresses refuse.
    """
    if ProbeResult.ACCEPTED in tries:
        return ProbeResult.ACCEPTED
    if tries and all(one is ProbeResult.REFUSED for one in tries):
        return ProbeResult.REFUSED
    return ProbeResult.UNKNOWN
