"""TLS between nodes: the gRPC listeners of controllers, and the calls to them.

A controller listener is PLAINTEXT, SSL or SASL_SSL. With TLS, both nodes always present a
certificate, even if clients of the listener log in by SASL. As in Kafka, nodes connect to the first
listener in `controller.listener.names`. A controller may have listeners with and without TLS while
a cluster is migrated from one to the other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ottla.model.errors import ConfigError
from ottla.model.settings.endpoints import ListenAddress
from ottla.model.settings.security.sasl import LISTENER_PREFIX, SASL_SSL
from ottla.model.settings.security.tls import (
    CLIENT_AUTHENTICATION,
    REQUIRED,
    SSL,
    TLS_PROTOCOLS,
    TlsConfig,
    check_server,
    tls_of_listener,
)

CONTROLLER_LISTENER_NAMES = "controller.listener.names"


def listed_names(text: str) -> list[str]:
    """Return the names in a comma-separated list of listeners, in upper case."""
    return [part.strip().upper() for part in text.split(",") if part.strip()]


def node_tls_of(
    texts: Mapping[str, str], listeners: Iterable[ListenAddress]
) -> dict[str, TlsConfig]:
    """Return the TLS settings that other nodes use, by name of the controller listener. Only
    listeners with TLS are included.

    Raises ConfigError if the settings are invalid or contradict each other.
    """
    return {
        one.name: _of_nodes(texts, one.name, one.protocol)
        for one in listeners
        if one.protocol in TLS_PROTOCOLS
    }


def client_tls_of(
    texts: Mapping[str, str],
    listeners: Iterable[ListenAddress],
    node_tls: Mapping[str, TlsConfig],
) -> dict[str, TlsConfig]:
    """Return the TLS settings that clients use, by name of the controller listener. Only listeners
    with TLS are included.

    On a listener with SSL, clients present a certificate, as nodes do. With SASL_SSL they log in,
    and the listener's `ssl.client.auth` decides whether they also present a certificate. Raises
    ConfigError if the settings are invalid or contradict each other.
    """
    found = dict(node_tls)
    for one in listeners:
        if one.protocol == SASL_SSL:
            found[one.name] = tls_of_listener(texts, one.name, SASL_SSL)
            check_server(found[one.name], one.name)
    return found


def dialled_listener(
    texts: Mapping[str, str], listeners: Iterable[ListenAddress]
) -> ListenAddress | None:
    """Return the listener to which nodes connect: the first listener in `controller.listener.names`
    that is among `listeners`, or else the first of `listeners`. Returns None if `listeners` is
    empty."""
    by_name = {one.name: one for one in listeners}
    for name in listed_names(texts.get(CONTROLLER_LISTENER_NAMES, "")):
        if name in by_name:
            return by_name[name]
    return next(iter(by_name.values()), None)


def _of_nodes(texts: Mapping[str, str], name: str, protocol: str) -> TlsConfig:
    config = tls_of_listener(texts, name, protocol)
    is_refused = protocol == SSL and config.client_auth != REQUIRED
    if is_refused and CLIENT_AUTHENTICATION in config.spellings:
        raise ConfigError(
            config.spelling(CLIENT_AUTHENTICATION),
            f"is {config.client_auth}, but nodes always present certificates to each other; set "
            f"{LISTENER_PREFIX}{name.lower()}.{CLIENT_AUTHENTICATION}=required, or remove it",
        )
    config = replace(config, client_auth=REQUIRED)
    check_server(config, name)
    return config
