"""Probe of a peer's address on a real machine, by TCP connections of the kernel."""

import errno
import socket
from typing import Any

import trio

from ottla.node.address_probe import PROBE_TIMEOUT_MS, ProbeResult, outcome_of

ADDRESSES_MAX = 4
"""Maximum number of addresses of one host to which a probe connects. For a host with more
addresses, the result is unknown, because its process may listen at an address that was not tried.
"""

NOT_USABLE_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""Errors for an address family that this machine does not support, such as `::1` without IPv6.
This machine can never have reached a peer at such an address, so the address is ignored."""


async def probe_address(host: str, port: int, /) -> ProbeResult:
    """Connect to all addresses of a host, close each connection at once, and return the combined
    result: accepted, refused or unknown. Implements the interface `Probe`."""
    tries: list[ProbeResult] = []
    with trio.move_on_after(PROBE_TIMEOUT_MS / 1000) as patience:
        try:
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return ProbeResult.UNKNOWN
        addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
        if len(addresses) > ADDRESSES_MAX:
            return ProbeResult.UNKNOWN
        for family, address in addresses:
            tried = await _try(family, address)
            if tried is ProbeResult.ACCEPTED:
                return tried
            if tried is not None:
                tries.append(tried)
    return ProbeResult.UNKNOWN if patience.cancelled_caught else outcome_of(tries)


async def _try(family: int, address: Any) -> ProbeResult | None:
    """Connect to one address, and return whether the connection was accepted or refused, or
    unknown. Returns None if this machine does not support the address family."""
    try:
        with trio.socket.socket(family, socket.SOCK_STREAM) as one:
            await one.connect(address)
    except ConnectionRefusedError:
        return ProbeResult.REFUSED
    except OSError as error:
        return None if error.errno in NOT_USABLE_HERE else ProbeResult.UNKNOWN
    return ProbeResult.ACCEPTED
