"""Settings of connections: how many a broker holds and accepts, of all clients and of each address.

`max.connections` and `max.connection.creation.rate` may be set for one listener too, with
`listener.name.NAME.` before the key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from ipaddress import ip_address

from ottla.model.errors import ConfigError
from ottla.model.limits import INT32_MAX
from ottla.model.settings.declare import Definition, allowed_texts, definitions, setting
from ottla.model.values import frozen

MAX_CONNECTIONS = "max.connections"
MAX_CONNECTION_CREATION_RATE = "max.connection.creation.rate"
MAX_CONNECTIONS_PER_IP = "max.connections.per.ip"
MAX_CONNECTIONS_PER_IP_OVERRIDES = "max.connections.per.ip.overrides"
LISTENER_PREFIX = "listener.name."
LISTENER_KEYS = (MAX_CONNECTIONS, MAX_CONNECTION_CREATION_RATE)


def parse_overrides(text: str) -> tuple[tuple[str, int], ...]:
    """a comma-separated list of ADDRESS:COUNT."""
    found: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        host, _, count = part.rpartition(":")
        # A name is not looked up: its addresses would change.
        address = str(ip_address(host.strip().removeprefix("[").removesuffix("]")))
        found[address] = int(count)
        if not 0 <= found[address] <= INT32_MAX:
            raise ValueError(text)
    return tuple(sorted(found.items()))


@frozen(kw_only=True)
class ConnectionConfig:
    """How many connections a broker holds, and how many it accepts in a second."""

    max_connections: int = setting(
        INT32_MAX,
        key=MAX_CONNECTIONS,
        at_least=0,
        is_dynamic=True,
        doc="Connections this broker holds at once; more wait in the kernel. The listener of "
        "brokers is never kept waiting where there are others: a connection to another listener "
        "that was silent for longest gives way. With listener.name.NAME. before it, those of one "
        "listener.",
    )
    max_connections_per_ip: int = setting(
        INT32_MAX,
        key=MAX_CONNECTIONS_PER_IP,
        at_least=0,
        is_dynamic=True,
        doc="Connections that one address may have at once; more are closed at once.",
    )
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = setting(
        (),
        key=MAX_CONNECTIONS_PER_IP_OVERRIDES,
        parse=parse_overrides,
        text="",
        is_dynamic=True,
        doc="The same for some addresses: ADDRESS:COUNT each.",
    )
    max_connection_creation_rate: int = setting(
        INT32_MAX,
        key=MAX_CONNECTION_CREATION_RATE,
        at_least=0,
        is_dynamic=True,
        doc="Connections a second that this broker accepts; more wait in the kernel, but for those "
        "to the listener of brokers. With listener.name.NAME. before it, those of one listener.",
    )
    texts_by_listener: Mapping[str, str] = field(default_factory=dict)
    """The settings of single listeners, by their whole keys."""

    def __post_init__(self) -> None:
        if self.max_connections_per_ip == 0 and not self.max_connections_per_ip_overrides:
            raise ConfigError(
                MAX_CONNECTIONS_PER_IP,
                f"is 0, which is allowed only where {MAX_CONNECTIONS_PER_IP_OVERRIDES} is set",
            )


@frozen(kw_only=True)
class ConnectionBounds:
    """The bounds of connections that hold at present."""

    count_max: int = INT32_MAX
    count_max_per_ip: int = INT32_MAX
    count_max_of_ips: Mapping[str, int] = field(default_factory=dict)
    """For some addresses, in place of `count_max_per_ip`."""
    rate_max: float = INT32_MAX
    count_max_of_listeners: Mapping[str, int] = field(default_factory=dict)
    """By the listeners' names in lower case, as keys of settings have them."""
    rate_max_of_listeners: Mapping[str, float] = field(default_factory=dict)


def listener_definition(key: str) -> Definition | None:
    """Return the definition of a setting for one listener, None if the key is of no such."""
    if not key.startswith(LISTENER_PREFIX):
        return None
    name, _, own_key = key.removeprefix(LISTENER_PREFIX).partition(".")
    if not name or own_key not in LISTENER_KEYS:
        return None
    return replace(definitions(ConnectionConfig)[own_key], key=key)


def listener_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of single listeners.  Raises ConfigError for a value not allowed."""
    found = {}
    for key, text in texts.items():
        definition = listener_definition(key)
        if definition is not None:
            definition.value_of(text)
            found[key] = text
    return found


def listener_values(texts: Mapping[str, str], own_key: str) -> Iterator[tuple[str, int]]:
    """Yield the listeners, in lower case, that have a setting of their own, with its value."""
    for key, text in texts.items():
        definition = listener_definition(key)
        if definition is not None and key.endswith(f".{own_key}"):
            name = key.removeprefix(LISTENER_PREFIX).removesuffix(f".{own_key}")
            # A release with other bounds may have stored what is not allowed.
            if allowed_texts({key: definition}, {key: text})[0]:
                yield name.lower(), definition.value_of(text)
