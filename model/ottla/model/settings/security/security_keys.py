"""Kafka's settings for encryption, authentication and authorization. Each is either supported or
refused.

An operator who writes such a setting relies on its effect. Without the effect, a node would accept
clients that the setting is meant to exclude. Ottla refuses only settings that would have an effect
in Kafka. It accepts a blank value, and the protocol PLAINTEXT. It also accepts entries of
`listener.security.protocol.map` for listeners that this node does not have, because Kafka's own
files contain them.

A node supports the settings of `sasl.py` for its clients. Nodes connect to controllers by gRPC,
with TLS (node_tls.py) and without SASL.
"""

from collections.abc import Callable, Mapping

from ottla.model.errors import ConfigError
from ottla.model.settings.endpoints import ListenAddress
from ottla.model.settings.security.node_tls import CONTROLLER_LISTENER_NAMES, listed_names
from ottla.model.settings.security.oauth import (
    ALLOWED_URLS,
    LOGIN_REFRESH_KEYS,
    LOGIN_REFRESH_REASON,
)
from ottla.model.settings.security.sasl import (
    FAILURE_DELAY_MS,
    LISTENER_PREFIX,
    SASL_PLAINTEXT,
    SASL_SSL,
    SERVED_MECHANISMS,
    SESSION_MS_MAX,
    is_sasl_key,
    split_key,
)
from ottla.model.settings.security.tls import (
    SSL,
    TLS_PROTOCOLS,
    is_tls_key,
    reason_tls_refused,
    split_listener,
)

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
"""Security protocols that a listener for clients may have."""
NODE_PROTOCOLS = (PLAINTEXT, SSL, SASL_SSL)
"""Security protocols that a controller listener may have. Nodes connect to it by gRPC, without
SASL. SASL_PLAINTEXT is not allowed: clients would have to log in, but anyone could connect as a
node."""

PROTOCOL_MAP = "listener.security.protocol.map"
LISTENER_KEYS = ("listeners", "advertised.listeners")
LISTENER_NAME_KEYS = (
    CONTROLLER_LISTENER_NAMES,
    "inter.broker.listener.name",
    "early.start.listeners",
)
INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"
SECURITY_KEYS = frozenset((PROTOCOL_MAP, INTER_BROKER_PROTOCOL, CONTROLLER_LISTENER_NAMES))
"""Keys of security settings that no other module of `settings` reads."""
INTER_BROKER_NAME = "inter.broker.listener.name"

_NO_TLS = "no listener of this node has TLS"
_NO_SASL = "this part of authentication (SASL) is not served yet"
_NO_PRINCIPALS = "principals are the names of users as they log in"

REFUSED_PREFIXES: Mapping[str, str] = {
    "ssl.": _NO_TLS,
    "sasl.": _NO_SASL,
    "org.apache.kafka.sasl.": _NO_SASL,
    "password.encoder.": "there is no ZooKeeper here, whose passwords it encrypts",
    "zookeeper.ssl.": "there is no ZooKeeper here",
}
"""Prefixes of the keys that are refused, each with the reason."""

REFUSED_KEYS: Mapping[str, str] = {
    **dict.fromkeys(LOGIN_REFRESH_KEYS, LOGIN_REFRESH_REASON),
    "principal.builder.class": _NO_PRINCIPALS,
    "security.providers": "TLS is provided by OpenSSL, and the JVM's providers have no effect",
    "org.apache.kafka.sasl.oauthbearer.allowed.files": f"files are listed in {ALLOWED_URLS}, as "
    "file:// URLs",
    SESSION_MS_MAX: _NO_SASL,
    FAILURE_DELAY_MS: _NO_SASL,
    "zookeeper.set.acl": "there is no ZooKeeper here",
}
"""Single keys that are refused, each with the reason."""

KERBEROS_PREFIX = "sasl.kerberos."
"""Prefix of the settings for GSSAPI (Kerberos). They are accepted although they have no effect: no
listener offers GSSAPI, so they protect nothing, and Kafka's clients and tools change them at run
time."""

SECURITY_FAMILY = (
    "allow.everyone.if.no.acl.found",
    "authorizer.",
    "delegation.token.",
    "password.",
    "principal.",
    "sasl.",
    "security.",
    "ssl.",
    "super.users",
)
"""Prefixes of the keys of security settings. A listener's prefix may precede them."""


def is_of_security_family(key: str) -> bool:
    """Return whether a key, which may have prefixes, belongs to a setting of security, such as TLS,
    SASL or the authorizer."""
    parts = key.split(".")
    ends = (".".join(parts[at:]) for at in range(len(parts)))
    names = list(ends) if key.startswith(LISTENER_PREFIX) else [key]
    if any(name.startswith(KERBEROS_PREFIX) for name in names):
        return False
    return any(name.startswith(SECURITY_FAMILY) for name in names)


def check_security(texts: Mapping[str, str], *, is_broker: bool = False) -> None:
    """Raise ConfigError for the first setting that requires protection which Ottla does not
    support."""
    _check_protocols(texts, PROTOCOLS if is_broker else NODE_PROTOCOLS)
    if texts.get(INTER_BROKER_PROTOCOL, "").strip() and texts.get(INTER_BROKER_NAME, "").strip():
        raise ConfigError(
            INTER_BROKER_PROTOCOL, f"is set, and so is {INTER_BROKER_NAME}; remove one of them"
        )
    of_nodes = node_listeners(texts, is_broker=is_broker)
    encrypted = {one.name for one in of_nodes if one.protocol in TLS_PROTOCOLS}
    logs_in_clients = is_broker or any(one.protocol == SASL_SSL for one in of_nodes)
    for key, text in texts.items():
        if (logs_in_clients and is_sasl_key(key)) or _is_node_tls(key, encrypted):
            continue
        if is_broker and split_listener(key)[1].startswith("ssl."):
            continue  # read or refused with the listeners (tls.py)
        reason = (reason_tls_refused(key, text) if encrypted else None) or reason_refused(key)
        if reason is not None and text.strip():
            raise ConfigError(
                key, f"is set, and {reason}; remove it, and restrict access by the network"
            )


def _is_node_tls(key: str, encrypted: set[str]) -> bool:
    """Return whether a TLS setting applies to one of the controller listeners in `encrypted`."""
    return (
        is_tls_key(key) and bool(encrypted) and split_listener(key)[0].upper() in {"", *encrypted}
    )


def node_listeners(texts: Mapping[str, str], *, is_broker: bool) -> tuple[ListenAddress, ...]:
    """Return the controller listeners in a settings file, with their security protocols and without
    their addresses.

    The file of a broker names them only in `controller.listener.names`.
    """
    names = listed_names(texts.get(CONTROLLER_LISTENER_NAMES, ""))
    if not is_broker:
        names += names_of_listeners(texts.get("listeners", ""))
    nameless = tuple(ListenAddress(name, "", 0) for name in dict.fromkeys(names))
    return with_protocols(texts, nameless)


def with_protocols(
    texts: Mapping[str, str], listeners: tuple[ListenAddress, ...]
) -> tuple[ListenAddress, ...]:
    """Return a copy of the listeners in which each has its security protocol, according to
    `listener.security.protocol.map`."""
    protocols = _protocol_map(texts.get(PROTOCOL_MAP, ""))
    return tuple(
        one._replace(protocol=_protocol_of(one.name, protocols) or PLAINTEXT) for one in listeners
    )


def _protocol_of(name: str, protocols: Mapping[str, str]) -> str | None:
    """Return the protocol of a listener according to the protocol map or, if the map lacks the
    listener, the protocol with the listener's name."""
    return protocols.get(name) or (name if name in PROTOCOLS else None)


def reason_refused(key: str) -> str | None:
    """Return the reason why a setting with this key is refused, or None if it is accepted."""
    _, mechanism, bare = split_key(key)
    if mechanism and mechanism.upper() not in SERVED_MECHANISMS:
        return f"{mechanism.upper()} is not served, only {', '.join(SERVED_MECHANISMS)}"
    if mechanism:
        return reason_refused(bare)
    if key.startswith(LISTENER_PREFIX):
        # listener.name.NAME.KEY and listener.name.NAME.MECHANISM.KEY
        _, _, rest = key.removeprefix(LISTENER_PREFIX).partition(".")
        parts = rest.split(".")
        keys = (".".join(parts[at:]) for at in range(len(parts)))
        return next((reason for one in keys if (reason := reason_refused(one))), None)
    if key in REFUSED_KEYS:
        return REFUSED_KEYS[key]
    if key.startswith(KERBEROS_PREFIX):
        return None
    return next(
        (reason for prefix, reason in REFUSED_PREFIXES.items() if key.startswith(prefix)), None
    )


def _check_protocols(texts: Mapping[str, str], served: tuple[str, ...]) -> None:
    """Raise ConfigError if a listener has an unsupported security protocol, or no entry in the
    protocol map."""
    inter_broker = texts.get(INTER_BROKER_PROTOCOL, "").strip().upper()
    if inter_broker not in ("", *served):
        raise ConfigError(INTER_BROKER_PROTOCOL, f"is {inter_broker}; {_only(served)}")
    protocols = _protocol_map(texts.get(PROTOCOL_MAP, ""))
    for key, names_of in _NAMES_OF.items():
        allowed = NODE_PROTOCOLS if key == CONTROLLER_LISTENER_NAMES else served
        for name in names_of(texts.get(key, "")):
            protocol = _protocol_of(name, protocols)
            if protocol is None:
                if protocols and key in LISTENER_KEYS:
                    raise ConfigError(
                        PROTOCOL_MAP, f"has no protocol for {name}, which {key} names"
                    )
                protocol = PLAINTEXT
            if protocol in allowed:
                continue
            means = "" if name == protocol else f", which {PROTOCOL_MAP} says is {protocol}"
            raise ConfigError(key, f"has {name}{means}; {_only(allowed)}")


def _protocol_map(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = (each.strip().upper() for each in part.partition(":"))
        if not name or protocol not in PROTOCOLS:
            raise ConfigError(
                PROTOCOL_MAP,
                f"has {part!r}; it must be NAME:PROTOCOL, PROTOCOL one of {', '.join(PROTOCOLS)}",
            )
        found[name] = protocol
    return found


def names_of_listeners(text: str) -> list[str]:
    """Return the listener names in a list of addresses such as `NAME://host:port`, in upper
    case."""
    return [part.partition("://")[0].strip().upper() for part in text.split(",") if "://" in part]


_NAMES_OF: Mapping[str, Callable[[str], list[str]]] = {
    **dict.fromkeys(LISTENER_KEYS, names_of_listeners),
    **dict.fromkeys(LISTENER_NAME_KEYS, listed_names),
}


def _only(served: tuple[str, ...]) -> str:
    if served == NODE_PROTOCOLS:
        return (
            "only PLAINTEXT, SSL and SASL_SSL are served there: nodes know each other by "
            "certificates, and clients log in over TLS alone"
        )
    return f"it must be one of {', '.join(served)}"
