"""Types and functions with which a command declares its verbs and their options and handlers.

The module of a command defines either `VERBS`, or `OPTIONS` and `run`. It may also define an
`EPILOG`. Parsers, help, completion scripts and docs/reference/cli.md are generated from these
declarations.
"""

import argparse
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ottla.cli.common import CONNECTION, FORMAT, bootstrap_of, run_async
from ottla.cli.imports import importing
from ottla.cli.options import Declared, declare_options

if TYPE_CHECKING:
    from ottla.client.admin import Admin

    AdminFunction = Callable[[Admin, argparse.Namespace], Awaitable[int]]
    AdminBody = AdminFunction | str

Handler = Callable[[argparse.Namespace], int]


class Verb(NamedTuple):
    """Declaration of a verb of a command, such as `list` of `ottla topic`. A verb with sub-verbs
    has no handler."""

    name: str
    summary: str
    handler: Handler | None
    options: tuple[Declared, ...]
    settings: Mapping[str, Any]
    verbs: "tuple[Verb, ...]" = ()


def verb(name: str, summary: str, handler: Handler, *options: Declared, **settings: Any) -> Verb:
    """Return the declaration of a verb of a command. `settings` are passed to the verb's argparse
    parser."""
    return Verb(name, summary, handler, options, settings)


def admin_verb(
    name: str,
    summary: str,
    body: "AdminBody",
    *options: Declared,
    has_format: bool = True,
    **settings: Any,
) -> Verb:
    """Return the declaration of a verb whose body is called with an admin client. The verb also has
    the options for connecting to a cluster."""
    common = (*CONNECTION, FORMAT) if has_format else CONNECTION
    return Verb(name, summary, partial(run_admin, body), (*options, *common), settings)


def run_admin(body: "AdminBody", arguments: argparse.Namespace, **settings: Any) -> int:
    """Run the body of a verb with an admin client of the cluster that the options specify. Returns
    the exit code.

    If the body is a text `module:function`, its module is imported only when the verb runs.
    """
    with importing():
        from ottla.client.admin import open_admin

        if isinstance(body, str):
            name, _, function = body.partition(":")
            body = getattr(import_module(name), function)
    asked = cast("AdminFunction", body)

    async def ask() -> int:
        bootstrap = bootstrap_of(arguments)
        if text := getattr(arguments, "bootstrap_controller", None):
            bootstrap = (await _active_controller(text),)
        async with open_admin(bootstrap, **settings) as admin:
            return await asked(admin, arguments)

    return run_async(ask)


async def _active_controller(text: str) -> tuple[str, int]:
    """Return the host and port of the active controller. `text` lists addresses of controllers,
    which are asked in order until one responds."""
    with importing():
        from ottla.client.network.active_controller import active_controller
        from ottla.model.errors import ConfigError
        from ottla.model.settings.endpoints import parse_bootstrap

    try:
        addresses = parse_bootstrap(text)
    except ValueError:
        raise ConfigError(
            "--bootstrap-controller", f"is {text!r}; it must be HOST:PORT,…"
        ) from None
    return await active_controller(addresses)


def verbs_of(name: str, summary: str, *verbs: Verb) -> Verb:
    """Return the declaration of a verb that only groups sub-verbs and has no handler."""
    return Verb(name, summary, None, (), {}, verbs)


def declare(parser: argparse.ArgumentParser, module: ModuleType) -> None:
    """Declare the options or verbs of a command in its argument parser. The parsed arguments then
    contain the verb's `handler`."""
    parser.epilog = getattr(module, "EPILOG", None)
    verbs: tuple[Verb, ...] | None = getattr(module, "VERBS", None)
    if verbs is not None:
        declare_verbs(parser, verbs)
        return
    declare_options(parser, module.OPTIONS)
    parser.set_defaults(handler=module.run)


def declare_verbs(parser: argparse.ArgumentParser, verbs: Iterable[Verb]) -> None:
    """Declare the verbs of a command in its argument parser. A command line must contain one of
    these verbs."""
    rows = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for each in verbs:
        own = rows.add_parser(each.name, help=each.summary, **each.settings)
        declare_options(own, each.options)
        if each.verbs:
            declare_verbs(own, each.verbs)
        else:
            own.set_defaults(handler=each.handler)
