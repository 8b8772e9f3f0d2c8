"""`ottla acl list|create|delete|explain`: who may do what, and why."""

import argparse

from ottla.cli.common import (
    add_cluster_arguments,
    add_format_argument,
    bootstrap_of,
    print_json,
    run_async,
)
from ottla.cli.outcomes import show
from ottla.cli.security.acl_explanation import explained
from ottla.cli.security.acl_words import (
    COLUMNS,
    add_resource_arguments,
    entries_of,
    filter_of,
    operation_of,
    patterns_of,
    principal_of,
    row_of,
    sentence_of,
    word_of,
)
from ottla.cli.terminal import say
from ottla.client.admin import Admin, open_admin
from ottla.metadata.standard_authorizer import Judgement
from ottla.model.acls import AclFilter
from ottla.model.errors import ConfigError
from ottla.model.visible_text import visible

DENIED = 2
"""Exit code of 'ottla acl explain' for what is denied."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of 'ottla acl'."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    list_ = verbs.add_parser("list", help="list entries")
    create = verbs.add_parser("create", help="allow or deny something")
    delete = verbs.add_parser("delete", help="delete entries")
    explain = verbs.add_parser("explain", help="show which entry decides what a user asks")
    for verb in (list_, delete):
        add_resource_arguments(verb, is_repeatable=False)
        verb.add_argument(
            "--matching",
            action="store_true",
            help="all entries that hold for the resource, prefixed ones and '*' too",
        )
        verb.add_argument("--principal", metavar="USER", help="entries of this user")
        verb.add_argument("--host", metavar="HOST", help="entries with this host, as written")
        verb.add_argument("--operation", metavar="OPERATION", help="entries of this operation")
    delete.add_argument("--all", action="store_true", help="every entry, where nothing is named")
    delete.add_argument("--dry-run", action="store_true", help="show the entries, delete none")
    for option in ("allow", "deny"):
        create.add_argument(
            f"--{option}",
            action="append",
            default=[],
            metavar="USER",
            help=f"user to {option}; '*' for every user",
        )
    add_resource_arguments(create, is_repeatable=True)
    create.add_argument(
        "--operation",
        action="append",
        default=[],
        metavar="OPERATION,…",
        help="operations: all, read, write, create, delete, alter, describe, …",
    )
    create.add_argument(
        "--producer", action="store_true", help="what a producer needs of topics and its id"
    )
    create.add_argument(
        "--consumer", action="store_true", help="what a consumer needs of topics and its group"
    )
    create.add_argument(
        "--host",
        action="append",
        metavar="HOST",
        help="address or CIDR range of the user (default: every host)",
    )
    explain.add_argument("principal", metavar="USER", help="user who asks")
    explain.add_argument("operation", metavar="OPERATION", help="operation asked for")
    add_resource_arguments(explain, is_repeatable=False)
    explain.add_argument(
        "--host", default="127.0.0.1", help="address of the user (default: %(default)s)"
    )
    for verb in (list_, create, delete, explain):
        add_cluster_arguments(verb)
        add_format_argument(verb)


def run(arguments: argparse.Namespace) -> int:
    """Run one verb against the cluster."""

    async def body() -> int:
        async with open_admin(bootstrap_of(arguments)) as admin:
            return await VERBS[arguments.verb](admin, arguments)

    return run_async(body)


async def list_acls(admin: Admin, arguments: argparse.Namespace) -> int:
    """List the entries that are asked for."""
    found = await admin.describe_acls(filter_of(arguments))
    show(arguments, COLUMNS, list(map(row_of, found)), command="acl")
    return 0


async def create_acls(admin: Admin, arguments: argparse.Namespace) -> int:
    """Write entries."""
    entries = entries_of(arguments)
    await admin.create_acls(entries)
    show(arguments, COLUMNS, list(map(row_of, entries)), command="acl")
    return 0


async def delete_acls(admin: Admin, arguments: argparse.Namespace) -> int:
    """Delete the entries that are asked for, and show them."""
    unwanted = filter_of(arguments)
    if unwanted == AclFilter() and not arguments.all:
        raise ConfigError("filter", "is empty, which is every entry; name some, or give --all")
    if arguments.dry_run:
        found = await admin.describe_acls(unwanted)
    else:
        found = await admin.delete_acls(unwanted)
    show(arguments, COLUMNS, list(map(row_of, found)), command="acl")
    return 0


async def explain_acl(admin: Admin, arguments: argparse.Namespace) -> int:
    """Decide as a broker would, and show by which entry."""
    patterns = patterns_of(arguments)
    if len(patterns) != 1:
        raise ConfigError("resource", "must be one; add --topic, --group or another")
    ((kind, name),) = patterns
    if arguments.prefixed:
        raise ConfigError("--prefixed", "is for entries; a user asks for one name")
    principal, operation = principal_of(arguments.principal), operation_of(arguments.operation)
    found = await explained(admin, principal, arguments.host, operation, kind, name)
    if arguments.format == "json":
        entry = None if found.entry is None else dict(zip(_NAMES, row_of(found.entry), strict=True))
        print_json({"allowed": found.is_allowed, "reason": found.reason, "entry": entry})
    else:
        outcome = "may" if found.is_allowed else "may not"
        what = f"{kind.name.lower().replace('_', ' ')} {name}"
        say(visible(f"{principal} {outcome} {word_of(operation)} on {what}: {_why(found)}"))
    return 0 if found.is_allowed else DENIED


_NAMES = tuple(column.lower() for column in COLUMNS)

REASONS = {
    "SuperUser": "it is one of super.users",
    "DefaultAllow": "no entry is about it, and allow.everyone.if.no.acl.found is true",
    "DefaultDeny": "no entry allows it",
}


def _why(found: Judgement) -> str:
    return REASONS[found.reason] if found.entry is None else sentence_of(found.entry)


VERBS = {
    "list": list_acls,
    "create": create_acls,
    "delete": delete_acls,
    "explain": explain_acl,
}
