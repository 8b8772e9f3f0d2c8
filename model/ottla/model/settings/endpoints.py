"""Settings that are lists of addresses: listeners and the voters of the quorum."""

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from ottla.model.ids import NodeId
from ottla.model.settings.declare import items

PORT_MAX = 65_535
HOST_CHARS_MAX = 253
"""Maximum length of a host name (RFC 1035), without the final dot. IP addresses are shorter."""
PRINTABLE = (0x21, 0x7E)
"""First and last byte allowed in a host name: neither spaces nor control characters."""
LISTENER_PREFIX = "listener.name."
"""Prefix of the keys of settings for one listener."""
FIRST_UNNAMED_ID = -2
"""Id under which a node contacts the first bootstrap server (Kafka's convention). Further servers
have lower ids."""
SASL_SSL = "SASL_SSL"
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, SASL_SSL: 3}
"""Kafka's numbers of security protocols."""
CONTROLLER_LISTENER = "CONTROLLER"
"""Name of the controllers' listener, if `controller.listener.names` names no other."""
CLIENT_FILE = "client.properties"
"""File with settings for clients of a secure local cluster, in the cluster's directory."""


class ListenAddress(NamedTuple):
    """One listener. `host` is empty for all interfaces; `port` 0 requests any free port."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.name}://{bracketed(self.host)}:{self.port}"


class ConfiguredVoter(NamedTuple):
    """One voter of the quorum and its gRPC address."""

    id: NodeId
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.id}@{bracketed(self.host)}:{self.port}"


def bracketed(host: str) -> str:
    """Return a host in the form in which it precedes `:port`, with brackets around an IPv6
    address."""
    return f"[{host}]" if ":" in host else host


def is_host(host: str) -> bool:
    """Return whether a host has the syntax of a host name or an IP address.

    Python's resolver raises UnicodeError, not OSError, for a name that is not valid text or that
    has a label that is empty or longer than 63 bytes. The running time is limited by the length of
    `host`.
    """
    if not 0 < len(host) <= HOST_CHARS_MAX:
        return False
    try:
        encoded = host.encode("idna")
    except UnicodeError:
        return False
    return len(encoded) <= HOST_CHARS_MAX and all(
        PRINTABLE[0] <= c <= PRINTABLE[1] for c in encoded
    )


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and port in `host:port` or `[v6]:port`; the host may be empty.

    Raises ValueError if the text is neither, or if the host is invalid.
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise ValueError(text)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(text)
    if host and not is_host(host):
        raise ValueError(text)
    return host, int(port)


def controllers_of(
    voters: Iterable[ConfiguredVoter], bootstrap: Iterable[tuple[str, int]]
) -> tuple[ConfiguredVoter, ...]:
    """Return the controllers in a node's settings: the voters and the bootstrap servers. The latter
    have negative ids, because their real ids are unknown."""
    unnamed = (
        ConfiguredVoter(NodeId(FIRST_UNNAMED_ID - at), host, port)
        for at, (host, port) in enumerate(bootstrap)
    )
    return (*voters, *unnamed)


def parse_listeners(text: str) -> tuple[ListenAddress, ...]:
    """a list of NAME://host:port, each name once."""
    found = tuple(_listener(part) for part in _parts(text))
    if not found or len({endpoint.name for endpoint in found}) != len(found):
        raise ValueError(text)
    return found


def parse_voters(text: str) -> tuple[ConfiguredVoter, ...]:
    """a list of id@host:port, each id once."""
    voters = []
    for part in _parts(text):
        identity, at, address = part.partition("@")
        host, port = parse_address(address)
        if not at or not host or port == 0:
            raise ValueError(text)
        voters.append(ConfiguredVoter(NodeId(int(identity)), host, port))
    if len({voter.id for voter in voters}) != len(voters):
        raise ValueError(text)
    return tuple(sorted(voters))


def parse_bootstrap(text: str) -> tuple[tuple[str, int], ...]:
    """a list of host:port."""
    return tuple(parse_address(part) for part in _parts(text))


def _listener(part: str) -> ListenAddress:
    name, scheme, address = part.partition("://")
    if not scheme or not name:
        raise ValueError(part)
    host, port = parse_address(address)
    return ListenAddress(name.upper(), host, port)


def _parts(text: str) -> Iterable[str]:
    return items(text)


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address, as IPv4, IPv6 or mapped IPv4, or `localhost`."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
