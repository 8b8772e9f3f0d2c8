"""`ottla mcp`: gives agents the answers of `ottla explain`, by the Model Context Protocol."""

import argparse
from typing import TYPE_CHECKING

from ottla.cli.common import CONNECTION
from ottla.cli.verbs import run_admin
from ottla.model.errors import ConfigError
from ottla.model.install_hint import install_hint

if TYPE_CHECKING:
    from ottla.client.admin import Admin

EPILOG = (
    "An agent starts this command and speaks to it on standard input and output. Its tools only "
    "read, with the rights of the login."
)


async def serve(admin: "Admin", arguments: argparse.Namespace) -> int:
    """Serve MCP until standard input ends. Returns the exit code."""
    try:
        from ottla.insight.mcp_server_driver import serve_stdio
    except ModuleNotFoundError as error:
        raise ConfigError(
            "ottla mcp", f"needs {error.name}, which is not installed: {install_hint('mcp')}"
        ) from None
    await serve_stdio(admin)
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    return run_admin(serve, arguments)


OPTIONS = CONNECTION
