"""The roles of a process (`process.roles`: broker, controller or both), and the settings of each
role in a file for both.

Pure. A process with both roles has one node id, one metadata log and one list of listeners, as in
Kafka. The listeners in `controller.listener.names` belong to the controller, all others to the
broker. Each role gets the keys that a file for this role alone would contain.
"""

from collections.abc import Callable, Mapping

from ottla.model.errors import ConfigError
from ottla.model.settings.security.node_tls import CONTROLLER_LISTENER_NAMES, listed_names
from ottla.model.settings.security.sasl import (
    INTER_BROKER_MECHANISM,
    LISTENER_PREFIX,
    SASL_SSL,
    is_sasl_key,
)
from ottla.model.settings.security.security_keys import (
    INTER_BROKER_NAME,
    INTER_BROKER_PROTOCOL,
    LISTENER_KEYS,
    names_of_listeners,
    node_listeners,
)
from ottla.model.settings.security.tls import TLS_PROTOCOLS, is_tls_key, split_listener

PROCESS_ROLES = "process.roles"
BROKER = "broker"
CONTROLLER = "controller"
BOTH = frozenset((BROKER, CONTROLLER))


def roles_of(texts: Mapping[str, str], default: str = "") -> frozenset[str]:
    """Return the roles that a settings file assigns to its process. If `process.roles` is not set,
    the role is `default`.

    Raises ConfigError for an unknown role, a role that is listed twice, or no role at all.
    """
    text = texts.get(PROCESS_ROLES, "").strip() or default
    names = _names(text)
    allowed = "broker, controller or broker,controller"
    if not names:
        raise ConfigError(PROCESS_ROLES, f"is not set; write {allowed}")
    if not BOTH.issuperset(names) or len(set(names)) != len(names):
        raise ConfigError(PROCESS_ROLES, f"is {text!r}; it must be {allowed}")
    return frozenset(names)


def has_both_roles(texts: Mapping[str, str]) -> bool:
    """Return whether a settings file assigns both roles, broker and controller, to its process.
    Returns False if `process.roles` is invalid."""
    return frozenset(_names(texts.get(PROCESS_ROLES, ""))) == BOTH


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def broker_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the broker role, by key, from a file for both roles.

    Raises ConfigError if the listeners cannot be divided between the roles.
    """
    of_controller = _controller_names(texts)
    found = dict(texts)
    for key in LISTENER_KEYS:
        if key in texts:
            found[key] = _selected(texts[key], lambda name: name not in of_controller)
    if not found["listeners"]:
        raise ConfigError(
            "listeners",
            f"has only listeners of {CONTROLLER_LISTENER_NAMES}; add one for the clients of the"
            " broker",
        )
    if not found.get("advertised.listeners", "").strip():
        found.pop("advertised.listeners", None)
    return found


def controller_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the controller role, by key, from a file for both roles. Settings that
    only secure the broker's listeners are left out.

    Raises ConfigError if the listeners cannot be divided between the roles.
    """
    of_controller = _controller_names(texts)
    protocols = {one.protocol for one in node_listeners(texts, is_broker=True)}
    logs_in_clients = SASL_SSL in protocols
    found = {
        key: text
        for key, text in texts.items()
        if not _is_of_broker_alone(key, of_controller, logs_in_clients=logs_in_clients)
    }
    for key in LISTENER_KEYS:
        if key in texts:
            found[key] = _selected(texts[key], of_controller.__contains__)
    if not found.get("advertised.listeners", "").strip():
        found.pop("advertised.listeners", None)
    if protocols.isdisjoint(TLS_PROTOCOLS):
        found = {key: text for key, text in found.items() if not is_tls_key(key)}
    return found


def _controller_names(texts: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the controller's listeners. Raises ConfigError if none is configured, or
    if one has no address."""
    names = listed_names(texts.get(CONTROLLER_LISTENER_NAMES, ""))
    if not names:
        raise ConfigError(
            CONTROLLER_LISTENER_NAMES, "is not set; name the listener of the controller role"
        )
    listed = names_of_listeners(texts.get("listeners", ""))
    for name in names:
        if name not in listed:
            raise ConfigError(
                CONTROLLER_LISTENER_NAMES, f"has {name}, which is not in listeners; add it there"
            )
    inter_broker = texts.get(INTER_BROKER_NAME, "").strip().upper()
    if inter_broker in names:
        raise ConfigError(
            INTER_BROKER_NAME,
            f"is {inter_broker}, a listener of {CONTROLLER_LISTENER_NAMES}; name one of the others",
        )
    return frozenset(names)


def _is_of_broker_alone(key: str, of_controller: frozenset[str], *, logs_in_clients: bool) -> bool:
    if key in (INTER_BROKER_NAME, INTER_BROKER_PROTOCOL, INTER_BROKER_MECHANISM):
        return True
    listener = split_listener(key)[0].upper() if key.startswith(LISTENER_PREFIX) else ""
    if listener and listener not in of_controller:
        return True
    return is_sasl_key(key) and not logs_in_clients


def _selected(text: str, is_selected: Callable[[str], bool]) -> str:
    """Return a list of endpoints that contains only the selected names."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return ",".join(part for part in parts if is_selected(part.partition("://")[0].strip().upper()))
