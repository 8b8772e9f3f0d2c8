"""Functions that commands share: they find the address and login of the cluster, and print JSON.

Only this module declares and resolves the options for connecting to a cluster. An option precedes
the environment, and the environment precedes a profile: see `bootstrap_of`.
"""

import argparse
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.imports import importing
from ottla.cli.options import Declared, one_of, option
from ottla.cli.terminal import say_json
from ottla.model.amounts import counted as counted  # for the commands
from ottla.model.errors import ConfigError
from ottla.model.settings.endpoints import CLIENT_FILE, parse_bootstrap

if TYPE_CHECKING:
    from ottla.cli.profiles import Profile

DIRECTORY_DEFAULT = "ottla-data"
BOOTSTRAP_DEFAULT = "localhost:9092"
BOOTSTRAP_VARIABLE = "OTTLA_BOOTSTRAP"
PROFILE_VARIABLE = "OTTLA_PROFILE"
CLUSTER_FILE = "cluster.json"
NODE_FIELDS = {"id": int, "address": str, "dir": str, "pid": int, "directory_id": str}
"""Fields of a node in cluster.json, the file of a local cluster, with their types."""

NODE_FIELDS_NEEDED = {"id", "address", "dir", "pid"}
PORT_DIGITS = 5

UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000,
         "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}  # fmt: skip


CONNECTION: tuple[Declared, ...] = (
    one_of(
        option(
            "--bootstrap-server --bootstrap HOST:PORT,…",
            f"addresses of brokers (default: ${BOOTSTRAP_VARIABLE}, else of the profile, else of "
            f"the cluster of --dir, else {BOOTSTRAP_DEFAULT})",
        ),
        option("--dir DIR", f"directory of 'ottla up' (default: {DIRECTORY_DEFAULT})"),
    ),
    option(
        "--profile NAME",
        f"address and login in ~/.config/ottla/config.toml (default: ${PROFILE_VARIABLE}, "
        "else none)",
    ),
    option(
        "--command-config FILE",
        "file with the settings of the login, as for Kafka's tools: security.protocol, "
        "sasl.mechanism, and sasl.jaas.config or sasl.username and sasl.password (default: those "
        "of the profile)",
    ),
)
"""Options of every command that connects to a cluster: its address and the login."""

FORMAT = option(
    "--format",
    "format of the output (default: %(default)s)",
    choices=("table", "json"),
    default="table",
)
ISOLATION = option(
    "--isolation-level",
    "end of a partition: with read_committed it is before its first open transaction "
    "(default: %(default)s)",
    choices=("read_uncommitted", "read_committed"),
    default="read_uncommitted",
)


AT_CONTROLLERS = option(
    "--bootstrap-controller HOST:PORT,...",
    "addresses of controllers to connect to, in place of brokers: for use while no broker runs",
)


def bootstrap_of(arguments: argparse.Namespace) -> tuple[tuple[str, int], ...]:
    """Return the addresses that a command connects to, and set the login of the current task.

    The addresses are from the first available source, in this order: --bootstrap-server or --dir,
    --profile, OTTLA_BOOTSTRAP, the profile of OTTLA_PROFILE, the file of --command-config, the
    local cluster of the default directory, BOOTSTRAP_DEFAULT. If BOOTSTRAP_DEFAULT is used,
    `arguments.has_no_address` is set to True, so that errors can explain it.

    The login is from the first available source, in this order: --command-config, the profile, a
    secure local cluster.
    """
    profile = _profile_of(arguments)
    from_file = _use_login_of(arguments, profile)
    text: str | None = arguments.bootstrap_server
    source = "--bootstrap-server"
    if text is None and arguments.profile and profile is not None:
        text, source = profile.bootstrap, f"bootstrap of profile {profile.name}"
    if text is None and arguments.dir is None and os.environ.get(BOOTSTRAP_VARIABLE):
        text, source = os.environ[BOOTSTRAP_VARIABLE], BOOTSTRAP_VARIABLE
    if text is None and profile is not None and profile.bootstrap:
        text, source = profile.bootstrap, f"bootstrap of profile {profile.name}"
    if text is None and arguments.dir is None and from_file:
        text, source = from_file, f"bootstrap.servers in {arguments.command_config}"
    if text is None:
        path = Path(arguments.dir or DIRECTORY_DEFAULT) / CLUSTER_FILE
        if path.exists():
            text = str(read_cluster_file(path)["bootstrap"])
        elif arguments.dir:
            raise _no_cluster_in(path.parent)
        else:
            text = BOOTSTRAP_DEFAULT
            arguments.has_no_address = True
    try:
        return parse_bootstrap(text)
    except ValueError:
        raise ConfigError(
            source, f"is {text!r}; it must be host:port, several with commas"
        ) from None


def local_directory_of(arguments: argparse.Namespace) -> Path | None:
    """Return the directory of the local cluster that a command uses, or None if the addresses of
    brokers have another source. Raises ConfigError if --dir names a directory without a cluster."""
    others = (arguments.bootstrap_server, arguments.profile, arguments.command_config)
    variables = (BOOTSTRAP_VARIABLE, PROFILE_VARIABLE)
    if arguments.dir is None and (any(others) or any(map(os.environ.get, variables))):
        return None
    directory = Path(arguments.dir or DIRECTORY_DEFAULT)
    if (directory / CLUSTER_FILE).exists():
        return directory
    if arguments.dir is not None:
        raise _no_cluster_in(directory)
    return None


def plain_bootstrap_of(arguments: argparse.Namespace) -> tuple[tuple[str, int], ...] | None:
    """Return the addresses that a command connects to, as `bootstrap_of` does. Returns None if the
    command logs in or uses TLS."""
    settings, _ = _login_texts(arguments, _profile_of(arguments))
    return None if settings.keys() - {"bootstrap.servers"} else bootstrap_of(arguments)


def _no_cluster_in(directory: Path) -> ConfigError:
    path = directory / CLUSTER_FILE
    return ConfigError("--dir", f"{path} is not there; start the cluster with 'ottla up'")


def _use_login_of(arguments: argparse.Namespace, profile: "Profile | None") -> str | None:
    """Set the login that a command's requests use. Returns the addresses in the file of
    --command-config, or None if it has none."""
    settings, source = _login_texts(arguments, profile)
    bootstrap = settings.pop("bootstrap.servers", None)
    if settings:
        use_login(settings, source)
    return bootstrap if arguments.command_config else None


def _login_texts(
    arguments: argparse.Namespace, profile: "Profile | None"
) -> tuple[dict[str, str], str]:
    """Return the settings of a command's login by key, and a prefix for errors about them."""
    path, source = arguments.command_config, "--command-config"
    if not path and profile is not None:
        return dict(profile.settings), f"profile {profile.name}: "
    if not path:
        path, source = _client_file_of(arguments), "--dir"
    if not path:
        return {}, ""
    from ottla.cli.profiles import read_settings

    return dict(read_settings(Path(path), source)), ""


def login_settings_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the login settings that `bootstrap_of` uses, by Kafka's setting keys. Commands pass
    them to other processes."""
    from ottla.model.settings.security.client_security import in_kafkas_keys

    settings, _ = _login_texts(arguments, _profile_of(arguments))
    settings.pop("bootstrap.servers", None)
    return in_kafkas_keys(settings)


def _client_file_of(arguments: argparse.Namespace) -> Path | None:
    """Return the path of the client settings file of the secure local cluster in use, or None if
    the cluster is not secure."""
    if arguments.bootstrap_server or (arguments.dir is None and os.environ.get(BOOTSTRAP_VARIABLE)):
        return None
    path = Path(arguments.dir or DIRECTORY_DEFAULT) / CLIENT_FILE
    return path if path.exists() else None


def _profile_of(arguments: argparse.Namespace) -> "Profile | None":
    """Return the profile that a command uses, or None if --dir selects a local cluster."""
    if arguments.profile and arguments.dir is not None:
        raise ConfigError("--profile", "names another cluster than --dir; leave out one of them")
    name, source = arguments.profile, "--profile"
    if not name and arguments.dir is None:
        name, source = os.environ.get(PROFILE_VARIABLE), PROFILE_VARIABLE
    if not name:
        return None
    # Most commands have no profile, so TOML is imported only here.
    from ottla.cli.profiles import read_profile

    return read_profile(name, source)


def use_login(texts: Mapping[str, str], source: str = "") -> None:
    """Use these login settings for all later requests of the current task. `source` is the origin
    of the settings in errors. Raises ConfigError for a setting that is not supported."""
    # Commands that open no connection do not import the login.
    from ottla.client.network.login import LOGIN
    from ottla.client.network.tls import TLS, TlsDialer
    from ottla.model.settings.security.client_security import access_of

    try:
        access = access_of(texts)
        LOGIN.set(access.login)
        TLS.set(None if access.tls is None else TlsDialer(access.tls))
    except ConfigError as error:
        raise ConfigError(f"{source}{error.setting}", error.problem) from None


def read_cluster_file(path: Path) -> dict[str, Any]:
    """Return the content of cluster.json, the file that 'ottla up' wrote. Raises ConfigError if the
    file has any other content."""
    try:
        found = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ConfigError(str(path), f"is not JSON ({error}); remove it") from None
    if not isinstance(found, dict) or not isinstance(found.get("bootstrap"), str):
        raise ConfigError(str(path), "was not written by 'ottla up'; remove it")
    for role in ("controllers", "brokers"):
        rows = found.setdefault(role, [])
        if not isinstance(rows, list) or not all(map(_is_node, rows)):
            raise ConfigError(str(path), f"has {role} that 'ottla up' never wrote; remove it")
    return found


def _is_node(row: object) -> bool:
    """Return whether an entry of cluster.json has the fields of a node, with their types."""
    if (
        not isinstance(row, dict)
        or not NODE_FIELDS.items() >= {name: type(value) for name, value in row.items()}.items()
    ):
        return False
    port = str(row.get("address")).rpartition(":")[2]
    return (
        {"id", "address", "dir", "pid"} <= row.keys()
        and port.isdecimal()
        and len(port) <= PORT_DIGITS
    )


def run_async(body: Callable[[], Awaitable[int]]) -> int:
    """Run a command's coroutine `body` in an event loop, and return its exit code."""
    with importing():
        import trio

    return trio.run(body)


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    say_json(value, indent=2)


def number_of(text: str) -> float | None:
    """Parse a number such as 12.5, 5M (5 million) or 5Mi (5 × 1,048,576). Returns None if the text
    is not such a number."""
    digits = text.rstrip("kKmMgGiI")
    unit = UNITS.get(text[len(digits) :].lower())
    try:
        return None if unit is None else float(digits) * unit
    except ValueError:
        return None
