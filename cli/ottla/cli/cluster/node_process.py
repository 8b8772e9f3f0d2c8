"""Runs a node in the foreground: reads its settings file, prints warnings, and reports that the
node is ready.

The process that starts a node sets environment variables. OTTLA_READY_FD is a pipe that receives
one `+` when the node is ready. OTTLA_WARNED is set if that process has already printed the
warnings. OTTLA_PARENT_PID is a process id: the node ends when that process ends. NOTIFY_SOCKET is
the socket on which systemd waits for a unit of Type=notify.
"""

import argparse
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ottla.cli.cluster.file_modes import warning_of_modes
from ottla.cli.options import Declared, option
from ottla.cli.secret_files import warn_of_secrets
from ottla.cli.terminal import note
from ottla.model.errors import ConfigError
from ottla.model.log_events import event
from ottla.model.settings.endpoints import ListenAddress
from ottla.model.version import VERSION
from ottla.node.local.local_nodes_driver import PARENT_VARIABLE, READY, READY_VARIABLE

C = TypeVar("C")

_LOGGER = logging.getLogger("ottla.node")

WARNED_VARIABLE = "OTTLA_WARNED"

LOOK_UP_S = 2.0
"""Maximum seconds that a starting node waits for the name service (DNS), which usually responds
within milliseconds or is down."""

Body = Callable[..., Awaitable[None]]
"""Type of the functions that run a node: `run_broker` and `run_controller`. Their arguments are the
configuration and a function `ready`. They return after the node was asked to stop."""


NODE_OPTIONS: tuple[Declared, ...] = (
    option("config CONFIG", ".properties file with Kafka's keys"),
    option("--set KEY=VALUE ...", "setting that overrides the file's; may be repeated"),
)


class NodeSettings(NamedTuple):
    """The settings from a node's settings file, together with the settings from the command
    line."""

    path: Path
    texts: Mapping[str, str]


def read_settings(arguments: argparse.Namespace) -> NodeSettings:
    """Read a node's settings file and the settings of the option `--set`, and return both. Raises
    ConfigError if a setting is invalid."""
    from ottla.node.local.private_files_driver import restrict_umask
    from ottla.node.properties import parse_properties

    restrict_umask()
    quiet_grpc()
    path = Path(arguments.config)
    try:
        texts = dict(parse_properties(path.read_text()))
    except FileNotFoundError:
        raise ConfigError("CONFIG", f"{path} is not there; 'ottla up' writes one") from None
    except UnicodeDecodeError:
        raise ConfigError("CONFIG", f"{path} is not a text file") from None
    warn_of_secrets(path, texts)
    for text in arguments.set:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError("--set", f"is {text!r}; it must be KEY=VALUE")
        texts[key.strip()] = value.strip()
    return NodeSettings(path, texts)


def config_of(
    arguments: argparse.Namespace,
    role: str,
    load: Callable[[Mapping[str, str]], tuple[C, set[str]]],
) -> C:
    """Read and return the settings of a node with one role, and warn about unknown keys. Raises
    ConfigError if a value is invalid, or if the file configures other roles for the node."""
    from ottla.model.settings.roles import BOTH, PROCESS_ROLES, roles_of

    settings = read_settings(arguments)
    roles = roles_of(settings.texts, role)
    if roles != {role}:
        command = "server" if roles == BOTH else next(iter(roles))
        raise ConfigError(
            PROCESS_ROLES,
            f"is {settings.texts[PROCESS_ROLES]!r}; run it with 'ottla {command} {settings.path}'",
        )
    if role == "broker":
        _check_single(settings)
    return config_from(settings, load)


def _check_single(settings: NodeSettings) -> None:
    """Raise ConfigError if the settings file describes a host with several brokers."""
    from ottla.model.settings.broker import BROKERS_PER_HOST

    count = settings.texts.get(BROKERS_PER_HOST, "").strip()
    if count:
        raise ConfigError(
            BROKERS_PER_HOST, f"is {count!r}; run it with 'ottla server {settings.path}'"
        )


def config_from(
    settings: NodeSettings, load: Callable[[Mapping[str, str]], tuple[C, set[str]]]
) -> C:
    """Return the typed configuration of a node from its settings, and warn about unknown keys.
    Raises ConfigError if a value is invalid."""
    path, texts = settings
    config, unknown = load(texts)
    if WARNED_VARIABLE in os.environ:
        return config
    _warn_of_unknown(path.name, unknown)
    for address, problem in unresolved(getattr(config, "advertised_listeners", ())):
        note(
            f"ottla: warning: advertised.listeners has {address}, and this machine cannot find "
            f"that host ({problem}); clients may not either"
        )
    for key, reason in _without_effect(texts).items():
        note(f"ottla: warning: {path.name} sets {key}, which has no effect yet: {reason}")
    for each in getattr(config, "of_roles", (config,)):
        _warn_of_modes(each, path)
    return config


def quiet_grpc() -> None:
    """Disable gRPC's own log when gRPC is imported. Error messages of Ottla contain the same
    information."""
    if os.environ.get("GRPC_VERBOSITY", "").lower() not in ("debug", "info"):
        os.environ["GRPC_VERBOSITY"] = "NONE"


def _warn_of_modes(config: Any, path: Path) -> None:
    """Print a warning about a node's directories and files that all users of the machine may read
    or write."""
    ends = [*getattr(config, "listener_tls", {}).values(), *getattr(config, "tls", {}).values()]
    ends += [config.dial_tls] if config.dial_tls is not None else []
    sasl = getattr(config, "sasl", None)
    warning = warning_of_modes(
        (*getattr(config, "log_dirs", ()), config.metadata_log_dir or ""),
        (str(path), *(file for end in ends for file in end.files)),
        has_secrets=bool(ends or config.authorizer.is_on or (sasl and sasl.listeners)),
    )
    if warning is not None:
        note(f"ottla: warning: {warning}")


def _warn_of_unknown(file: str, unknown: set[str]) -> None:
    """Print a warning for each unknown key in a node's settings file, and one warning for all keys
    of Kafka that have no effect in Ottla.

    Raises ConfigError for a key that is a misspelt known key.
    """
    from ottla.model.settings.dynamic import broker_definitions
    from ottla.model.settings.kafka_keys import keys_of_kafka
    from ottla.model.settings.misspelt import meant_key

    known = _keys_of_any_role() | broker_definitions().keys()
    unknown = unknown - known
    of_kafka = keys_of_kafka(unknown)
    for key in sorted(unknown.difference(of_kafka)):
        meant = meant_key(key, known)
        if meant is not None:
            raise ConfigError(key, f"is no setting; did you mean {meant}?")
        note(f"ottla: warning: {file} sets {key}, which Ottla does not know; it is ignored")
    if of_kafka:
        keys = "a key" if len(of_kafka) == 1 else f"{len(of_kafka)} keys"
        note(
            f"ottla: warning: {file} sets {keys} of Kafka without meaning here, ignored: "
            + ", ".join(of_kafka)
        )


def unresolved(listeners: Iterable[ListenAddress]) -> Iterator[tuple[str, str]]:
    """Yield each advertised listener address whose host this machine cannot resolve, with the
    reason.

    The wait for the name service is limited. A host that is not resolved within the limit is not
    reported.
    """
    import socket
    from concurrent.futures import ThreadPoolExecutor, wait

    pool = ThreadPoolExecutor(thread_name_prefix="look up")
    asked = {one: pool.submit(socket.getaddrinfo, one.host, one.port) for one in listeners}
    wait(asked.values(), LOOK_UP_S)
    pool.shutdown(wait=False, cancel_futures=True)
    for one, answer in asked.items():
        error = answer.exception() if answer.done() and not answer.cancelled() else None
        if isinstance(error, OSError):
            yield str(one), error.strerror or str(error)
        elif isinstance(error, UnicodeError):
            yield str(one), "no valid host name"


def _without_effect(texts: Mapping[str, str]) -> dict[str, str]:
    from ottla.model.settings.declare import settings_without_effect
    from ottla.model.settings.dynamic import broker_definitions

    return settings_without_effect(broker_definitions(), texts)


def _keys_of_any_role() -> set[str]:
    """Return all settings keys of brokers and of controllers, since one settings file may configure
    both roles."""
    from ottla.model.settings.broker import BrokerConfig
    from ottla.model.settings.controller import ControllerConfig
    from ottla.model.settings.declare import definitions
    from ottla.model.settings.quotas import MutationQuotaConfig
    from ottla.model.settings.security.authorizer import AuthorizerConfig

    kinds = (BrokerConfig, ControllerConfig, MutationQuotaConfig, AuthorizerConfig)
    return {key for kind in kinds for key in definitions(kind)}


def run_node(body: Body, config: Any, *, role: str, roles: Sequence[str] = ()) -> int:
    """Run a node until it is asked to stop. Returns exit code 0. Raises the error that ended the
    node.

    `body` is the coroutine function of the node, which is called with `config`. `role` is the name
    of the node in `ps` and in the log. `roles` lists the roles if the process has several.
    """
    import trio

    from ottla.model.errors import only_error
    from ottla.node.log_output_driver import log_to_outputs
    from ottla.node.process_driver import exempt_from_gc, prepare_process

    parent = os.environ.get(PARENT_VARIABLE)
    prepare_process(name=f"{role}-{config.node_id}", dies_with_parent=parent is not None)
    lines = log_to_outputs(config.log_output, f"{role} {config.node_id}")
    if parent is not None and os.getppid() != int(parent):
        return 0  # the parent ended before the kernel was asked to signal its end
    _log_start(role, config, roles or (role,))
    exempt_from_gc()
    try:
        trio.run(partial(body, config, ready=report_ready))
    except BaseExceptionGroup as group:
        error = only_error(group)
        _LOGGER.error("ended: %s", error, extra=event("node.failed"))
        raise error from None
    except Exception as error:
        _LOGGER.error("ended: %s", error, extra=event("node.failed"))
        raise
    else:
        _LOGGER.info("stopped, as it was asked to", extra=event("node.stopped"))
    finally:
        lines.stop()
    return 0


def _log_start(role: str, config: Any, roles: Sequence[str]) -> None:
    """Log the start of a node: version, role, listeners, directories."""
    listeners = [str(one) for one in config.listeners]
    directories = list(getattr(config, "log_dirs", None) or [config.metadata_log_dir])
    _LOGGER.info(
        "Ottla %s, %s %s, listeners %s, directories %s",
        VERSION,
        role,
        config.node_id,
        ", ".join(listeners),
        ", ".join(directories),
        extra=event(
            "node.started",
            version=VERSION,
            roles=list(roles),
            listeners=listeners,
            directories=directories,
        ),
    )


def report_ready() -> None:
    """Report that the node is ready, to the process that started it and to systemd."""
    descriptor = os.environ.pop(READY_VARIABLE, None)
    if descriptor is not None:
        os.write(int(descriptor), READY)
        os.close(int(descriptor))
    address = os.environ.pop("NOTIFY_SOCKET", None)
    if address is not None:
        _notify(address)


def _notify(address: str) -> None:
    """Send READY=1 to systemd's notification socket, as sd_notify does. An address that begins with
    @ is an abstract socket."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
        telling.connect("\0" + address[1:] if address.startswith("@") else address)
        telling.send(b"READY=1")
