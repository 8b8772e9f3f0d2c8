"""Probes of addresses by the kernel's TCP."""

import errno
import socket
from typing import Any

import trio

from ottla.node.address_probe import PROBE_TIMEOUT_MS, Probed, outcome_of

ADDRESSES_MAX = 4
"""Addresses of one host that are tried.  A host with more may live behind one that is not tried,
so of it nothing is known."""

NOT_USABLE_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""An address of a family that this machine has not, as `::1` where IPv6 is off: no peer of this
machine was ever met there."""


async def probe_address(host: str, port: int, /) -> Probed:
    """Connect to every address of a host, and hang up at once; satisfies the seam `Probe`."""
    tries: list[Probed] = []
    with trio.move_on_after(PROBE_TIMEOUT_MS / 1000) as patience:
        try:
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return Probed.UNKNOWN
        addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
        if len(addresses) > ADDRESSES_MAX:
            return Probed.UNKNOWN
        for family, address in addresses:
            tried = await _try(family, address)
            if tried is Probed.ACCEPTED:
                return tried
            if tried is not None:
                tries.append(tried)
    return Probed.UNKNOWN if patience.cancelled_caught else outcome_of(tries)


async def _try(family: int, address: Any) -> Probed | None:
    """Return what one address says; None where this machine has no such addresses."""
    try:
        with trio.socket.socket(family, socket.SOCK_STREAM) as one:
            await one.connect(address)
    except ConnectionRefusedError:
        return Probed.REFUSED
    except OSError as error:
        return None if error.errno in NOT_USABLE_HERE else Probed.UNKNOWN
    return Probed.ACCEPTED
