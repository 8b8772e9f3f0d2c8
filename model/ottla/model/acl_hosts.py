"""From which hosts an access control entry holds: every one, one address, or a range.  Pure.

Ranges are CIDR notation (KIP-1276), with the forms that Kafka takes.  Other than in Kafka an
address is compared as an address, so that `2001:db8::1` and `2001:db8:0:0:0:0:0:1` are one host.
"""

import re
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from ottla.model.acls import WILDCARD

IPV4_RANGE = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})", re.ASCII)
IPV6_RANGE = re.compile(r"([0-9a-fA-F:.]{2,45})/(\d{1,3})", re.ASCII)
BITS = {4: 32, 6: 128}


class Address(NamedTuple):
    """An address as a number."""

    version: int
    """4 or 6."""
    number: int


class HostPattern(NamedTuple):
    """The addresses of one version whose first bits are given."""

    version: int
    number: int
    mask: int

    def holds(self, address: Address | None) -> bool:
        """Return whether an address is one of them; None is no address."""
        return (
            address is not None
            and address.version == self.version
            and address.number & self.mask == self.number
        )


def address_of(host: str) -> Address | None:
    """Return the address that a text is; None if it is none, such as a name."""
    try:
        found = ip_address(host)
    except ValueError:
        return None
    return Address(found.version, int(found))


def range_of(text: str) -> HostPattern | None:
    """Return the range that a text in CIDR notation is; None if it is none.

    Bits of the host may be set, as in Kafka: `10.0.0.5/8` is the range of `10.0.0.0/8`.
    """
    found = IPV4_RANGE.fullmatch(text)
    if found is not None:
        *octets, length = map(int, found.groups())
        if max(octets) > 255 or length > BITS[4]:
            return None
        return _pattern(4, int.from_bytes(octets), length)
    found = IPV6_RANGE.fullmatch(text)
    if found is None:
        return None
    try:
        address = IPv6Address(found[1])
    except ValueError:
        return None
    length = int(found[2])
    if length > BITS[6] or address.ipv4_mapped is not None:
        return None
    return _pattern(6, int(address), length)


def host_pattern_of(host: str) -> HostPattern | None:
    """Return what the host of an entry is compared by; None if as text alone."""
    if host == WILDCARD:
        return None
    if "/" in host:
        return range_of(host)
    address = address_of(host)
    if address is None:
        return None
    return _pattern(address.version, address.number, BITS[address.version])


def _pattern(version: int, number: int, length: int) -> HostPattern:
    bits = BITS[version]
    mask = ((1 << length) - 1) << (bits - length)
    return HostPattern(version, number & mask, mask)
