"""Functions that parse a client's bootstrap addresses."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from ottla.client.network.arguments import shown, wrong_type
from ottla.model.settings.endpoints import PORT_MAX, parse_address

C = TypeVar("C")

DEFAULT_PORT = 9_092
"""Port of a bootstrap address without a port. It is the port in Kafka's own configuration files."""
CURE = "write host:port,host:port (without a port: 9092)"


def addresses_of(bootstrap: str | Iterable[str | tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the bootstrap addresses as (host, port) pairs. `bootstrap` is a text `host:port,…`, or
    a list of such texts or of pairs.

    Raises TypeError for other types, and ValueError for a text that is not an address.
    """
    if isinstance(bootstrap, Mapping):  # not shown: it may have a password
        raise TypeError(
            "bootstrap is a mapping; it must be a text such as 'localhost:9092'; give the settings "
            "as config, such as ProducerConfig.from_kafka({…})"
        )
    if isinstance(bootstrap, str):
        parts: list[str | tuple[str, int]] = [*filter(None, map(str.strip, bootstrap.split(",")))]
    elif isinstance(bootstrap, Iterable) and not isinstance(bootstrap, bytes):
        parts = list(bootstrap)
        if len(parts) == 2 and isinstance(parts[0], str) and isinstance(parts[1], int):
            raise TypeError(f"bootstrap is one pair; give a list: [({parts[0]!r}, {parts[1]})]")
    else:
        raise wrong_type("bootstrap", bootstrap, "a text such as 'localhost:9092'")
    if not parts:
        raise ValueError(f"bootstrap is empty; {CURE}")
    return [_address_of(part) for part in parts]


def _address_of(part: object) -> tuple[str, int]:
    if isinstance(part, str):
        text = part.strip()
        try:
            host, port = parse_address(text if _has_port(text) else f"{text}:{DEFAULT_PORT}")
        except ValueError:
            host, port = "", 0
        if not host or not port or "/" in host or any(map(str.isspace, host)):
            raise ValueError(f"bootstrap: {part!r} is no address; {CURE}")
        return host, port
    if isinstance(part, tuple) and len(part) == 2:
        host, port = part
        if isinstance(host, str) and isinstance(port, int) and 0 < port <= PORT_MAX:
            return host, port
    raise TypeError(f"bootstrap: {shown(part)} is no address; {CURE}")


def _has_port(text: str) -> bool:
    """Return whether a text ends with a port.  An IPv6 address with a port needs brackets."""
    if text.startswith("["):
        return not text.endswith("]")
    return ":" in text


def config_of(config: C | None, kind: type[C]) -> C:
    """Return `config`, or the default settings of the client if `config` is None.

    Raises TypeError if `config` is not of the class `kind`.
    """
    if config is None:
        return kind()
    if not isinstance(config, kind):
        if isinstance(config, Mapping):  # not shown: it may have a password
            raise TypeError(f"config is a mapping; give {kind.__name__}.from_kafka({{…}})")
        raise wrong_type("config", config, f"a {kind.__name__}: {kind.__name__}(client_id='…')")
    return config
