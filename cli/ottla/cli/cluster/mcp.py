"""`ottla mcp`: serves the answers of `ottla explain` to AI agents, by the Model Context Protocol
(MCP)."""

import argparse
from typing import TYPE_CHECKING

from ottla.cli.common import CONNECTION
from ottla.cli.options import option
from ottla.cli.terminal import note
from ottla.cli.verbs import run_admin
from ottla.model.errors import ConfigError
from ottla.model.install_hint import install_hint

if TYPE_CHECKING:
    from ottla.client.admin import Admin

EPILOG = (
    "An agent starts this command and speaks to it on standard input and output; or it connects by "
    "HTTP with a token. Its tools only read, with the rights of the login."
)


async def serve(admin: "Admin", arguments: argparse.Namespace) -> int:
    """Serve the Model Context Protocol until standard input ends or, with --http, until
    interrupted. Returns the exit code."""
    try:
        if arguments.http is None:
            from ottla.insight.mcp_server_driver import serve_stdio
        else:
            from ottla.insight.mcp_http_driver import serve_http, settings_of
    except ModuleNotFoundError as error:
        raise ConfigError(
            "ottla mcp", f"needs {error.name}, which is not installed: {install_hint('mcp')}"
        ) from None
    if arguments.http is None:
        for name in ("token_file", "keystore"):
            if getattr(arguments, name) is not None:
                raise ConfigError(f"--{name.replace('_', '-')}", "is for --http, which is missing")
        await serve_stdio(admin)
        return 0
    settings = settings_of(
        arguments.http, arguments.token_file, arguments.keystore, tuple(arguments.host_name)
    )
    await serve_http(admin, settings, lambda url: note(f"serving MCP at {url}"))
    return 0


def run(arguments: argparse.Namespace) -> int:
    """`ottla mcp`: serve the answers of `ottla explain` to AI agents, and return the exit code."""
    return run_admin(serve, arguments)


OPTIONS = (
    *CONNECTION,
    option(
        "--http HOST:PORT",
        "serve HTTP at this address, in place of standard input and output; with --keystore it may "
        "be other than a loopback address",
    ),
    option("--token-file FILE", "file with the bearer token that each HTTP request must have"),
    option("--keystore FILE", "PEM file with private key and certificates, to serve HTTPS"),
    option("--host-name NAME ...", "another host name by which agents reach the HTTP server"),
)
