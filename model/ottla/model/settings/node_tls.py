"""TLS between nodes: the listeners of controllers, which speak gRPC, and the calls to them.

A listener of controllers is PLAINTEXT or SSL; on SSL both sides always show a certificate.  Nodes
dial with the protocol of the first name in `controller.listener.names`, as in Kafka; a controller
may listen on both while a cluster changes over.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ottla.model.errors import ConfigError
from ottla.model.settings.endpoints import ListenAddress
from ottla.model.settings.sasl import LISTENER_PREFIX
from ottla.model.settings.tls import (
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
    """Return the TLS of each listener of controllers that encrypts, by name.

    Raises ConfigError where a setting cannot be honoured.
    """
    return {one.name: _of_nodes(texts, one.name) for one in listeners if one.protocol == SSL}


def dialled_listener(
    texts: Mapping[str, str], listeners: Iterable[ListenAddress]
) -> ListenAddress | None:
    """Return the listener of controllers that nodes dial: the first that is listed."""
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
            f"is {config.client_auth}, and nodes always show each other certificates; set "
            f"{LISTENER_PREFIX}{name.lower()}.{CLIENT_AUTHENTICATION}=required, or take it out",
        )
    config = replace(config, client_auth=REQUIRED)
    check_server(config, name)
    return config
