"""What commands share: where the cluster is, and how tables and JSON are printed.

The options of the connection are declared and resolved here alone.  An option is above the
environment, and the environment above a profile: see `bootstrap_of`.
"""

import argparse
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.imports import importing
from ottla.cli.terminal import Colour, say_block, say_json
from ottla.model.errors import ConfigError
from ottla.model.settings.endpoints import CLIENT_FILE, parse_bootstrap
from ottla.model.visible_text import visible

if TYPE_CHECKING:
    from ottla.cli.profiles import Profile

DIRECTORY_DEFAULT = "ottla-data"
BOOTSTRAP_DEFAULT = "localhost:9092"
BOOTSTRAP_VARIABLE = "OTTLA_BOOTSTRAP"
PROFILE_VARIABLE = "OTTLA_PROFILE"
CLUSTER_FILE = "cluster.json"
NODE_FIELDS = {"id": int, "address": str, "dir": str, "pid": int, "directory_id": str}
"""What a node of a cluster's file may have."""

NODE_FIELDS_NEEDED = {"id", "address", "dir", "pid"}
PORT_DIGITS = 5

UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000,
         "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}  # fmt: skip


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --bootstrap-server, --dir and --profile, each of which names a cluster, and the login."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--bootstrap-server",
        "--bootstrap",
        metavar="HOST:PORT,…",
        help=f"addresses of brokers (default: ${BOOTSTRAP_VARIABLE}, else of the profile, else of "
        f"the cluster of --dir, else {BOOTSTRAP_DEFAULT})",
    )
    where.add_argument("--dir", help=f"directory of 'ottla up' (default: {DIRECTORY_DEFAULT})")
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help=f"address and login in ~/.config/ottla/config.toml (default: ${PROFILE_VARIABLE}, "
        "else none)",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="file with the settings of the login, as for Kafka's tools: security.protocol, "
        "sasl.mechanism, and sasl.jaas.config or sasl.username and sasl.password (default: those "
        "of the profile)",
    )


def add_format_argument(parser: argparse.ArgumentParser) -> None:
    """Add --format table|json."""
    parser.add_argument(
        "--format",
        choices=("table", "json"),
        default="table",
        help="format of the output (default: %(default)s)",
    )


def add_isolation_argument(parser: argparse.ArgumentParser) -> None:
    """Add --isolation-level of what shows how far readers are behind."""
    parser.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="end of a partition: with read_committed it is before its first open transaction "
        "(default: %(default)s)",
    )


def bootstrap_of(arguments: argparse.Namespace) -> tuple[tuple[str, int], ...]:
    """Return the addresses a command was told, or those of the directory's cluster.

    The first that is given counts: --bootstrap-server or --dir, --profile, OTTLA_BOOTSTRAP, the
    profile of OTTLA_PROFILE, the file of --command-config, the directory that is there.  What this
    task asks from now on is asked as the user of --command-config, else of the profile, else of a
    secure local cluster.
    """
    profile = _profile_of(arguments)
    told = _use_login_of(arguments, profile)
    text: str | None = arguments.bootstrap_server
    source = "--bootstrap-server"
    if text is None and arguments.profile and profile is not None:
        text, source = profile.bootstrap, f"bootstrap of profile {profile.name}"
    if text is None and arguments.dir is None and os.environ.get(BOOTSTRAP_VARIABLE):
        text, source = os.environ[BOOTSTRAP_VARIABLE], BOOTSTRAP_VARIABLE
    if text is None and profile is not None and profile.bootstrap:
        text, source = profile.bootstrap, f"bootstrap of profile {profile.name}"
    if text is None and arguments.dir is None and told:
        text, source = told, f"bootstrap.servers in {arguments.command_config}"
    if text is None:
        path = Path(arguments.dir or DIRECTORY_DEFAULT) / CLUSTER_FILE
        if path.exists():
            text = str(read_cluster_file(path)["bootstrap"])
        elif arguments.dir:
            raise ConfigError("--dir", f"{path} is not there; start the cluster with 'ottla up'")
        else:
            text = BOOTSTRAP_DEFAULT
    try:
        return parse_bootstrap(text)
    except ValueError:
        raise ConfigError(
            source, f"is {text!r}; it must be host:port, several with commas"
        ) from None


def plain_bootstrap_of(arguments: argparse.Namespace) -> tuple[tuple[str, int], ...] | None:
    """Return the addresses as `bootstrap_of` does; None for a command that logs in or uses TLS."""
    settings, _ = _login_texts(arguments, _profile_of(arguments))
    return None if settings.keys() - {"bootstrap.servers"} else bootstrap_of(arguments)


def _use_login_of(arguments: argparse.Namespace, profile: "Profile | None") -> str | None:
    """Ask as the user who is named; return the addresses that a file of --command-config has."""
    settings, source = _login_texts(arguments, profile)
    bootstrap = settings.pop("bootstrap.servers", None)
    if settings:
        use_login(settings, source)
    return bootstrap if arguments.command_config else None


def _login_texts(
    arguments: argparse.Namespace, profile: "Profile | None"
) -> tuple[dict[str, str], str]:
    """Return the settings that name the user, and what errors about them begin with."""
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
    """Return the settings that `bootstrap_of` logs in by, in Kafka's keys, for other processes."""
    from ottla.model.settings.client_security import in_kafkas_keys

    settings, _ = _login_texts(arguments, _profile_of(arguments))
    settings.pop("bootstrap.servers", None)
    return in_kafkas_keys(settings)


def _client_file_of(arguments: argparse.Namespace) -> Path | None:
    """Return the settings of clients of the local cluster that is meant, if it is a secure one."""
    if arguments.bootstrap_server or (arguments.dir is None and os.environ.get(BOOTSTRAP_VARIABLE)):
        return None
    path = Path(arguments.dir or DIRECTORY_DEFAULT) / CLIENT_FILE
    return path if path.exists() else None


def _profile_of(arguments: argparse.Namespace) -> "Profile | None":
    """Return the profile that the command was told; none where --dir names a local cluster."""
    if arguments.profile and arguments.dir is not None:
        raise ConfigError("--profile", "names another cluster than --dir; leave out one of them")
    name, source = arguments.profile, "--profile"
    if not name and arguments.dir is None:
        name, source = os.environ.get(PROFILE_VARIABLE), PROFILE_VARIABLE
    if not name:
        return None
    # Most commands have no profile and read no TOML.
    from ottla.cli.profiles import read_profile

    return read_profile(name, source)


def use_login(texts: Mapping[str, str], source: str = "") -> None:
    """Ask as the user whom settings name; ConfigError names what cannot be honoured."""
    # No command that opens no connection needs what a login is made of.
    from ottla.client.network.login import LOGIN
    from ottla.client.network.tls import TLS, TlsDialer
    from ottla.model.settings.client_security import access_of

    try:
        access = access_of(texts)
        LOGIN.set(access.login)
        TLS.set(None if access.tls is None else TlsDialer(access.tls))
    except ConfigError as error:
        raise ConfigError(f"{source}{error.setting}", error.problem) from None


def read_cluster_file(path: Path) -> dict[str, Any]:
    """Read what 'ottla up' wrote about its cluster."""
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
    """Return whether a row of a cluster's file has what makes a node, and of the right kinds."""
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
    """Run a command's async body to its exit code."""
    with importing():
        import trio

    return trio.run(body)


def print_json(value: Any) -> None:
    """Print a value as JSON for machines."""
    say_json(value, indent=2)


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns that line up; numbers to the right, texts to the left."""
    say_block(table(headers, rows), colours={headers[0]: Colour.BOLD})


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return columns that line up; numbers to the right, texts to the left, each safe to see."""
    kept = [list(row) for row in rows]
    texts = [[_shown(cell) for cell in row] for row in kept]
    widths = [
        max(len(header), *(len(row[column]) for row in texts)) if texts else len(header)
        for column, header in enumerate(headers)
    ]
    is_number = [
        bool(kept) and all(isinstance(row[column], int | float) for row in kept)
        for column in range(len(headers))
    ]
    lines = [_line(headers, widths, is_number)]
    lines += [_line(row, widths, is_number) for row in texts]
    return "\n".join(lines)


def number_of(text: str) -> float | None:
    """Read a number such as 12.5, 5M (millions) or 5Mi (of 1,048,576); None for anything else."""
    digits = text.rstrip("kKmMgGiI")
    unit = UNITS.get(text[len(digits) :].lower())
    try:
        return None if unit is None else float(digits) * unit
    except ValueError:
        return None


def counted(count: int, noun: str) -> str:
    """Return how many of something there are, in words."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _line(cells: Sequence[str], widths: Sequence[int], is_number: Sequence[bool]) -> str:
    return "  ".join(
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, is_number, strict=True)
    ).rstrip()


def _shown(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    if isinstance(cell, list | tuple):
        return visible(",".join(map(str, cell)))
    return "-" if cell is None else visible(str(cell))
