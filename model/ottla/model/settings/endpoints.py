"""Settings that are lists of addresses: listeners, quorum voters and bootstrap servers."""

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from ottla.model.ids import NodeId
from ottla.model.settings.declare import items

PORT_MAX = 65_535
HOST_CHARS_MAX = 253
"""Maximum length of a host name in characters (RFC 1035), without the final dot. IP addresses are
shorter."""
PRINTABLE = (0x21, 0x7E)
"""Lowest and highest byte allowed in a host name. The range excludes spaces and control
characters."""
LISTENER_PREFIX = "listener.name."
"""Prefix of the keys that set a value for one listener only: `listener.name.NAME.KEY`."""
FIRST_UNNAMED_ID = -2
"""Node id of the first bootstrap server, whose real id is unknown (Kafka's convention). Further
bootstrap servers have lower ids."""
SASL_SSL = "SASL_SSL"
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, SASL_SSL: 3}
"""Security protocols by name, with Kafka's number for each."""
CONTROLLER_LISTENER = "CONTROLLER"
"""Name of the controller listener if `controller.listener.names` is not set."""
CLIENT_FILE = "client.properties"
"""Name of the file with settings for clients, in the directory of a secure local cluster."""


class ListenAddress(NamedTuple):
    """One listener: its name, address and security protocol. An empty `host` means all interfaces.
    With `port` 0, the operating system chooses a free port."""

    name: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.name}://{bracketed(self.host)}:{self.port}"


class ConfiguredVoter(NamedTuple):
    """One voter of the quorum: its node id and its gRPC address."""

    id: NodeId
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.id}@{bracketed(self.host)}:{self.port}"


def bracketed(host: str) -> str:
    """Return a host as it is written before `:port`: an IPv6 address in brackets, any other host
    unchanged."""
    return f"[{host}]" if ":" in host else host


def is_host(host: str) -> bool:
    """Return whether a text has the syntax of a host name or an IP address.

    Python's resolver raises UnicodeError for a name that is not valid text, and for a label that is
    empty or longer than 63 bytes. This check prevents that. The length of `host` is limited, so
    that the check is fast.
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
    """Split `host:port` or `[v6]:port` into host and port. The host may be empty.

    Raises ValueError if the text has neither form, or if the host is invalid.
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
    """Return the controllers that a node's settings name: the voters and the bootstrap servers.
    Bootstrap servers have negative ids, because their real ids are unknown."""
    unnamed = (
        ConfiguredVoter(NodeId(FIRST_UNNAMED_ID - at), host, port)
        for at, (host, port) in enumerate(bootstrap)
    )
    return (*voters, *unnamed)


def parse_listeners(text: str) -> tuple[ListenAddress, ...]:
    """a list of NAME://host:port, each name once.

    Returns the listeners. Raises ValueError if the text is malformed. Error messages quote the
    first line as the description of valid texts.
    """
    found = tuple(_listener(part) for part in _parts(text))
    if not found or len({endpoint.name for endpoint in found}) != len(found):
        raise ValueError(text)
    return found


def parse_voters(text: str) -> tuple[ConfiguredVoter, ...]:
    """a list of id@host:port, each id once.

    Returns the voters. Raises ValueError if the text is malformed. Error messages quote the first
    line as the description of valid texts.
    """
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
    """a list of host:port.

    Returns the hosts and ports of the bootstrap servers. Raises ValueError if the text is
    malformed. Error messages quote the first line as the description of valid texts.
    """
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
    """Return whether a host is `localhost` or a loopback address: IPv4, IPv6, or IPv4 mapped into
    IPv6."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
