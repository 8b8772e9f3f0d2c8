"""`ottla acl list|create|delete|explain`: shows and changes ACLs, and explains their decisions."""

import argparse

from ottla.cli.common import counted, print_json
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.security.acl_words import (
    COLUMNS,
    entries_of,
    filter_of,
    operation_of,
    patterns_of,
    resource_options,
    row_of,
)
from ottla.cli.terminal import note, say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.insight.facts.acl_facts import explained
from ottla.insight.rules.acl_text import principal_of, word_of
from ottla.insight.rules.denial import reason_of
from ottla.model.errors import ConfigError
from ottla.model.security.acls import AclFilter
from ottla.model.visible_text import visible

DENIED = 2
"""Exit code of 'ottla acl explain' for a denied operation."""


async def list_acls(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla acl list`: list the ACLs that match the filter in the arguments. Returns the exit
    code."""
    found = await admin.describe_acls(filter_of(arguments))
    show(arguments, COLUMNS, list(map(row_of, found)), command="acl")
    return 0


async def create_acls(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla acl create`: create the ACLs in the arguments. Returns the exit code."""
    entries = entries_of(arguments)
    await admin.create_acls(entries)
    show(arguments, COLUMNS, list(map(row_of, entries)), command="acl")
    if arguments.consumer and not arguments.group:
        note("no group is named; a consumer of a group also needs --group NAME")
    return 0


async def delete_acls(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla acl delete`: show the ACLs that match the filter, and delete them if the user
    confirms. Returns the exit code."""
    unwanted = filter_of(arguments)
    if unwanted == AclFilter() and not arguments.all:
        raise ConfigError("filter", "is empty, which is every entry; name some, or give --all")
    if arguments.yes:
        found = await admin.delete_acls(unwanted)
        show(arguments, COLUMNS, list(map(row_of, found)), command="acl")
        return 0
    found = await admin.describe_acls(unwanted)
    show(arguments, COLUMNS, list(map(row_of, found)), command="acl")
    if found and await confirm_in_loop(arguments, f"delete {counted(len(found), 'ACL')}?"):
        await admin.delete_acls(unwanted)
    return 0


async def explain_acl(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla acl explain`: authorize a request as a broker would, and show the ACL that decides.
    Returns the exit code."""
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
        say(visible(f"{principal} {outcome} {word_of(operation)} on {what}: {reason_of(found)}"))
    return 0 if found.is_allowed else DENIED


_NAMES = tuple(column.lower() for column in COLUMNS)

FILTERS = (
    *resource_options(is_repeatable=False),
    option("--matching", "all ACLs that apply to the resource, prefixed ones and '*' too"),
    option("--principal USER", "ACLs of this user"),
    option("--host HOST", "ACLs with this host, as written"),
    option("--operation OPERATION", "ACLs of this operation"),
)
VERBS = (
    admin_verb(
        "list",
        "list ACLs",
        list_acls,
        *FILTERS,
    ),
    admin_verb(
        "create",
        "create ACLs that allow or deny operations",
        create_acls,
        option("--allow USER ...", "user to allow; '*' for every user"),
        option("--deny USER ...", "user to deny; '*' for every user"),
        *resource_options(is_repeatable=True),
        option(
            "--operation OPERATION,… ...",
            "operations: all, read, write, create, delete, alter, describe, …",
        ),
        option("--producer", "operations that a producer needs on topics and its transactional id"),
        option("--consumer", "operations that a consumer needs on topics and its group"),
        option(
            "--host HOST",
            "address or CIDR range of the user (default: every host)",
            action="append",
        ),
    ),
    admin_verb(
        "delete",
        "delete ACLs",
        delete_acls,
        *FILTERS,
        option("--all", "every ACL, if no filter is given"),
        CONFIRMATION,
    ),
    admin_verb(
        "explain",
        "show which ACL decides whether a user may do an operation",
        explain_acl,
        option("principal USER", "name of the user"),
        option("operation OPERATION", "operation to decide"),
        *resource_options(is_repeatable=False),
        option("--host HOST", "address of the user (default: %(default)s)", default="127.0.0.1"),
    ),
)
