"""TLS settings that a running broker accepts: the certificates and the trust of a single listener.

As in Kafka, they are set for one broker under the key `listener.name.NAME.KEY`. All other TLS
settings take effect only after a restart.
"""

from collections.abc import Mapping
from dataclasses import replace

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import Definition, definitions
from ottla.model.settings.security.listener_settings import ListenerSettings
from ottla.model.settings.security.tls import (
    CERTIFICATE_CHAIN,
    KEY,
    KEY_PASSWORD,
    KEYSTORE_LOCATION,
    KEYSTORE_TYPE,
    SECRET_KEYS,
    TLS_KEYS,
    TRUSTED_CERTIFICATES,
    TRUSTSTORE_LOCATION,
    TRUSTSTORE_TYPE,
    TlsConfig,
    TlsSettings,
    check_server,
    split_listener,
    tls_of_listener,
)

DYNAMIC_TLS_KEYS = frozenset(
    {
        KEYSTORE_TYPE,
        KEYSTORE_LOCATION,
        CERTIFICATE_CHAIN,
        KEY,
        KEY_PASSWORD,
        TRUSTSTORE_TYPE,
        TRUSTSTORE_LOCATION,
        TRUSTED_CERTIFICATES,
    }
)
"""Keys of the TLS settings that may change while a broker runs, without the listener's prefix."""


def listener_tls_definition(key: str) -> Definition | None:
    """Return the declaration of a TLS setting for a single listener, or None if the key is no such
    setting."""
    listener, bare = split_listener(key)
    if not listener or bare not in TLS_KEYS:
        return None
    return replace(
        definitions(TlsSettings)[bare],
        key=key,
        is_dynamic=bare in DYNAMIC_TLS_KEYS,
        broker_keys=(bare,),
    )


def is_listener_tls_key(key: str) -> bool:
    """Return whether a key is a TLS setting for one listener, such as
    `listener.name.NAME.ssl.keystore.location`."""
    listener, bare = split_listener(key)
    return bool(listener) and bare in TLS_KEYS


def is_secret_key(key: str) -> bool:
    """Return whether a key is a TLS setting whose value must never be shown, such as a password.
    The key may have a listener's prefix."""
    return split_listener(key)[1] in SECRET_KEYS


def tls_in_force(
    config: ListenerSettings, listener: str, overrides: Mapping[str, str]
) -> TlsConfig:
    """Return the effective TLS settings of a listener: the settings of the file, overridden by
    dynamic settings.

    `overrides` contains all dynamic settings of this broker. Raises ConfigError if they contradict
    each other or the file.
    """
    texts = {
        key: text
        for key, text in overrides.items()
        if is_listener_tls_key(key) and split_listener(key)[0].lower() == listener.lower()
    }
    if not texts:
        return config.listener_tls[listener]
    protocol = next(one.protocol for one in config.listeners if one.name == listener)
    found = tls_of_listener({**config.texts, **texts}, listener, protocol)
    check_server(found, listener)
    return found


def check_listener(config: ListenerSettings, key: str) -> None:
    """Raise ConfigError if the listener in a key does not exist on this broker or does not use
    TLS."""
    listener, _ = split_listener(key)
    names = [name.lower() for name in config.listener_tls]
    if listener not in names:
        raise ConfigError(
            key,
            f"is for {listener}; the listeners of this broker with TLS are "
            f"{', '.join(names) or 'none'}, in lower case",
        )
