"""TLS between nodes: the gRPC listeners of controllers, and the calls to them.

A controller listener is PLAINTEXT or SSL. With SSL, both sides always present a certificate. Nodes
connect with the protocol of the first name in `controller.listener.names`, as in Kafka. A
controller may have both kinds of listeners while a cluster is migrated from one to the other.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ottla.model.errors import ConfigError
from ottla.model.settings.endpoints import ListenAddress
from ottla.model.settings.security.sasl import LISTENER_PREFIX
from ottla.model.settings.security.tls import (
    CLIENT_AUTHENTICATION,
    REQUIRED,
    SSL,
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
    """Return the TLS settings of each controller listener that uses TLS, by name.

    Raises ConfigError if a setting cannot be applied.
    """
    return {one.name: _of_nodes(texts, one.name) for one in listeners if one.protocol == SSL}


def dialled_listener(
    texts: Mapping[str, str], listeners: Iterable[ListenAddress]
) -> ListenAddress | None:
    """Return the controller listener that nodes connect to: the first in the list."""
    by_name = {one.name: one for one in listeners}
    for name in listed_names(texts.get(CONTROLLER_LISTENER_NAMES, "")):
        if name in by_name:
            return by_name[name]
    return next(iter(by_name.values()), None)


def _of_nodes(texts: Mapping[str, str], name: str) -> TlsConfig:
    config = tls_of_listener(texts, name, SSL)
    if CLIENT_AUTHENTICATION in config.spellings and config.client_auth != REQUIRED:
        raise ConfigError(
            config.spelling(CLIENT_AUTHENTICATION),
            f"is {config.client_auth}, but nodes always present certificates to each other; set "
            f"{LISTENER_PREFIX}{name.lower()}.{CLIENT_AUTHENTICATION}=required, or remove it",
        )
    config = replace(config, client_auth=REQUIRED)
    check_server(config, name)
    return config
