"""Runs a verb of a command in the test's own event loop, with an Admin of the test."""

from types import ModuleType
from typing import cast

from ottla.cli.parser import Parser
from ottla.cli.verbs import declare
from ottla.client.admin import Admin


async def run_verb(command: ModuleType, admin: Admin, *words: str) -> int:
    """Run the verb of an `admin_verb` declaration and return its exit code."""
    parser = Parser(prog="ottla")
    declare(parser, command)
    arguments = parser.parse_args(words)
    (body,) = arguments.handler.args
    return cast(int, await body(admin, arguments))
