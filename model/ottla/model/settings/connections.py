"""Settings of connections: how many a broker keeps open, and how many it accepts per second, in
total and per IP address.

`max.connections` and `max.connection.creation.rate` may also be set for a single listener. The key
then starts with `listener.name.NAME.`.
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
    """a comma-separated list of ADDRESS:COUNT.

    Returns the maximum number of connections by address. Raises ValueError if the text is
    malformed. Error messages quote the first line as the description of valid texts.
    """
    found: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        host, _, count = part.rpartition(":")
        # A host name is not resolved, because its addresses may change.
        address = str(ip_address(host.strip().removeprefix("[").removesuffix("]")))
        found[address] = int(count)
        if not 0 <= found[address] <= INT32_MAX:
            raise ValueError(text)
    return tuple(sorted(found.items()))


@frozen(kw_only=True)
class ConnectionConfig:
    """Limits on the open connections of a broker, and on the connections that it accepts per
    second."""

    max_connections: int = setting(
        INT32_MAX,
        key=MAX_CONNECTIONS,
        at_least=0,
        is_dynamic=True,
        doc="Maximum number of open connections of this broker; further ones wait in the kernel. "
        "The inter-broker listener, if there are others, never waits: the connection to another "
        "listener that has been idle for longest is closed instead. With the prefix "
        "listener.name.NAME., the maximum of one listener.",
    )
    max_connections_per_ip: int = setting(
        INT32_MAX,
        key=MAX_CONNECTIONS_PER_IP,
        at_least=0,
        is_dynamic=True,
        doc="Maximum number of connections from one address; further ones are closed at once.",
    )
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = setting(
        (),
        key=MAX_CONNECTIONS_PER_IP_OVERRIDES,
        parse=parse_overrides,
        text="",
        is_dynamic=True,
        doc="Other maximums for single addresses, as ADDRESS:COUNT each.",
    )
    max_connection_creation_rate: int = setting(
        INT32_MAX,
        key=MAX_CONNECTION_CREATION_RATE,
        at_least=0,
        is_dynamic=True,
        doc="Maximum number of connections that this broker accepts per second; further ones wait "
        "in the kernel, except those to the inter-broker listener. With the prefix "
        "listener.name.NAME., the maximum of one listener.",
    )
    texts_by_listener: Mapping[str, str] = field(default_factory=dict)
    """Settings for single listeners as text, by full key: `listener.name.NAME.` and the setting's
    key."""

    def __post_init__(self) -> None:
        if self.max_connections_per_ip == 0 and not self.max_connections_per_ip_overrides:
            raise ConfigError(
                MAX_CONNECTIONS_PER_IP,
                f"is 0, which is allowed only where {MAX_CONNECTIONS_PER_IP_OVERRIDES} is set",
            )


@frozen(kw_only=True)
class ConnectionBounds:
    """Limits on connections that are currently in effect."""

    count_max: int = INT32_MAX
    count_max_per_ip: int = INT32_MAX
    count_max_of_ips: Mapping[str, int] = field(default_factory=dict)
    """Maximum number of connections from an IP address, for addresses with a separate limit. It
    replaces `count_max_per_ip` for these addresses."""
    rate_max: float = INT32_MAX
    count_max_of_listeners: Mapping[str, int] = field(default_factory=dict)
    """Maximum number of open connections of a listener, for listeners with a separate limit. The
    keys are listener names in lower case."""
    rate_max_of_listeners: Mapping[str, float] = field(default_factory=dict)
    """Maximum number of connections that a listener accepts per second, for listeners with a
    separate limit. The keys are listener names in lower case."""


def listener_definition(key: str) -> Definition | None:
    """Return the declaration of a connection setting for one listener, or None if the key is not of
    this kind."""
    if not key.startswith(LISTENER_PREFIX):
        return None
    name, _, own_key = key.removeprefix(LISTENER_PREFIX).partition(".")
    if not name or own_key not in LISTENER_KEYS:
        return None
    return replace(definitions(ConnectionConfig)[own_key], key=key)


def is_connection_bound(key: str) -> bool:
    """Return whether a key is a setting that limits connections of the whole node or of one
    listener."""
    return key in definitions(ConnectionConfig) or listener_definition(key) is not None


def listener_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in `texts` that limit the connections of one listener. Raises ConfigError
    for an invalid value."""
    found = {}
    for key, text in texts.items():
        definition = listener_definition(key)
        if definition is not None:
            definition.value_of(text)
            found[key] = text
    return found


def listener_values(texts: Mapping[str, str], own_key: str) -> Iterator[tuple[str, int]]:
    """Yield each listener (its name in lower case) that has its own value of the setting `own_key`,
    and this value."""
    for key, text in texts.items():
        definition = listener_definition(key)
        if definition is not None and key.endswith(f".{own_key}"):
            name = key.removeprefix(LISTENER_PREFIX).removesuffix(f".{own_key}")
            # A release with other bounds may have stored a value that is now invalid.
            if allowed_texts({key: definition}, {key: text})[0]:
                yield name.lower(), definition.value_of(text)
