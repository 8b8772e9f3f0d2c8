"""`ottla console`: serves web pages about a cluster.

`ottla up` starts this command with an open socket, and with a key in the environment. The console
then ends when its standard input is closed, at the end of `ottla up`.
"""

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.common import CONNECTION, bootstrap_of, login_settings_of, run_async
from ottla.cli.imports import importing
from ottla.cli.options import option
from ottla.cli.terminal import note
from ottla.model.errors import ConfigError
from ottla.model.install_hint import install_hint

if TYPE_CHECKING:
    import trio

    from ottla.console.server_settings import ServerSettings

PORT_DEFAULT = 8088
LISTEN_DEFAULT = "127.0.0.1"
SOCKET_VARIABLE = "OTTLA_CONSOLE_SOCKET"
KEY_VARIABLE = "OTTLA_CONSOLE_KEY"
NICENESS = 5
FILE_BYTES_MAX = 1024 * 1024
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
EPILOG = (
    "Without --login and --proxy-header, the console has the rights of its own login, listens on "
    "this machine only, and, if it has a login, prints an address with a key. Each change is "
    "logged to standard error."
)

OPTIONS = (
    *CONNECTION,
    option(
        "--listen ADDRESS", "IP address to listen on (default: %(default)s)", default=LISTEN_DEFAULT
    ),
    option(
        "--port PORT",
        "TCP port; 0 for a free one (default: %(default)s)",
        type=int,
        default=PORT_DEFAULT,
    ),
    option("--tls-certificate FILE", "PEM file with the certificate, to serve HTTPS"),
    option("--tls-key FILE", "PEM file with its private key (default: the certificate's file)"),
    option("--host-name NAME ...", "another host name by which browsers reach the console"),
    option("--login", "users sign in by name and password, as SCRAM users of the cluster"),
    option("--proxy-header NAME", "header in which a proxy names the user that it signed in"),
    option("--proxy-address NETWORK ...", "IP address or network from which this header counts"),
    option("--role USER=ROLE ...", "role of a user: viewer, operator or admin"),
    option("--role-file FILE", 'file with a line such as alice = "admin" for each user'),
    option(
        "--default-role",
        "role of all other users (default: viewer; without a login, admin)",
        choices=("viewer", "operator", "admin"),
    ),
    option("--hide-messages", "show no keys, values and headers of records"),
    option("--registry URL", "base URL of the schema registry, to decode records"),
    option("--schema FILE ...", "Avro or Protobuf schema, to decode records"),
    option("--reports DIR ...", "directory with reports of 'ottla jepsen' and 'ottla world'"),
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla console`: serve the console's web pages until interrupted. Returns the exit code."""
    with importing():
        try:
            from ottla.console.server_driver import serve_console
        except ModuleNotFoundError as error:
            raise ConfigError(
                "ottla console",
                f"needs {error.name}, which is not installed: {install_hint('console')}",
            ) from None
        import trio
    settings = settings_of(arguments)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("ottla.console").setLevel(logging.INFO)

    async def serve() -> int:
        async with trio.open_nursery() as nursery:
            if settings.socket is not None:
                os.nice(NICENESS)  # the nodes on this machine come first
                nursery.start_soon(_end_with_input, nursery.cancel_scope)
            await serve_console(
                bootstrap_of(arguments), settings, lambda address: note(f"console: {address}")
            )
        return 0

    return run_async(serve)


async def _end_with_input(scope: "trio.CancelScope") -> None:
    import trio

    while await trio.to_thread.run_sync(os.read, sys.stdin.fileno(), 1024, abandon_on_cancel=True):
        pass
    scope.cancel()


def settings_of(arguments: argparse.Namespace) -> "ServerSettings":
    """Return the settings of the console's web server, from the command's arguments. Raises
    ConfigError if they are not safe, or if a file cannot be read."""
    from ottla.console.access.proxy_gate import parse_networks
    from ottla.console.access.roles import RoleTable, parse_role, parse_roles
    from ottla.console.page_types import ConsoleConfig
    from ottla.console.server_settings import (
        AccessKind,
        ServerSettings,
        access_kind,
        check_address,
        default_role,
        user_security,
    )

    login = login_settings_of(arguments)
    host: str = arguments.listen
    kind = access_kind(
        wants_login=arguments.login,
        proxy_header=arguments.proxy_header or "",
        host=host,
        own_login=login,
    )
    certificate: str | None = arguments.tls_certificate
    if arguments.tls_key and certificate is None:
        raise ConfigError("--tls-key", "is given without --tls-certificate")
    check_address(kind, host, has_tls=certificate is not None)
    if arguments.proxy_address and kind is not AccessKind.PROXY:
        raise ConfigError("--proxy-address", "is given without --proxy-header")
    if certificate is not None:
        _check_certificate(certificate, arguments.tls_key)
    file: str | None = arguments.role_file
    chosen: str | None = arguments.default_role
    socket = os.environ.pop(SOCKET_VARIABLE, "")
    return ServerSettings(
        host=host,
        port=arguments.port,
        certificate=certificate,
        key=arguments.tls_key or certificate,
        names=tuple(arguments.host_name),
        access=kind,
        roles=RoleTable(
            by_user=parse_roles(arguments.role, _text_of(file) if file else "", file or ""),
            default=parse_role(chosen, "--default-role") if chosen else default_role(kind),
        ),
        security=user_security(login) if kind is AccessKind.LOGIN else None,
        proxy_header=arguments.proxy_header or "",
        proxy_networks=parse_networks(arguments.proxy_address) if kind is AccessKind.PROXY else (),
        config=ConsoleConfig(
            hides_messages=arguments.hide_messages,
            registry_url=arguments.registry or "",
            schema_files=tuple(arguments.schema),
            report_folders=tuple(arguments.reports),
        ),
        socket=int(socket) if socket.isdigit() else None,
        link_key=os.environ.pop(KEY_VARIABLE, ""),
    )


def _text_of(path: str) -> str:
    with Path(path).open("rb") as file:
        raw = file.read(FILE_BYTES_MAX + 1)
    if len(raw) > FILE_BYTES_MAX:
        raise ConfigError("--role-file", f"{path} is larger than {FILE_BYTES_MAX} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ConfigError("--role-file", f"{path} is not UTF-8") from None


def _check_certificate(certificate: str, key: str | None) -> None:
    import ssl

    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:  # ssl.SSLError is an OSError
        raise ConfigError(
            "--tls-certificate",
            f"{certificate} is no PEM file with a certificate and its key: {error}",
        ) from None
