"""Hosts to which an ACL entry applies: all hosts, one address, or an address range. Pure.

Ranges are in CIDR notation (KIP-1276), in the forms that Kafka accepts. Kafka compares addresses as
text. Ottla compares their numeric values, so that `2001:db8::1` and `2001:db8:0:0:0:0:0:1` are the
same host.
"""

import re
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from ottla.model.security.acls import WILDCARD

IPV4_RANGE = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})", re.ASCII)
IPV6_RANGE = re.compile(r"([0-9a-fA-F:.]{2,45})/(\d{1,3})", re.ASCII)
BITS = {4: 32, 6: 128}


class Address(NamedTuple):
    """An IP address as an integer, with its IP version."""

    version: int
    """IP version, 4 or 6."""
    number: int


class HostPattern(NamedTuple):
    """A range of IPv4 or IPv6 addresses: all addresses with the given prefix."""

    version: int
    number: int
    mask: int

    def holds(self, address: Address | None) -> bool:
        """Return whether an address is in the range. Returns False for None."""
        return (
            address is not None
            and address.version == self.version
            and address.number & self.mask == self.number
        )


def address_of(host: str) -> Address | None:
    """Return the IP address in a text, or None if the text is something else, such as a host
    name."""
    try:
        found = ip_address(host)
    except ValueError:
        return None
    return Address(found.version, int(found))


def range_of(text: str) -> HostPattern | None:
    """Return the address range in CIDR notation, or None if the text is not in this notation.

    Host bits may be set, as in Kafka: `10.0.0.5/8` is the range `10.0.0.0/8`.
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
    """Return the host of an ACL entry as an address range. A single address becomes a range of one
    address. Returns None if the host is a name, which is compared as text."""
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
