"""`ottla user list|add|delete`: manages users and their passwords."""

import argparse

from ottla.cli.confirmation import YES, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.terminal import say
from ottla.cli.users.password import PASSWORD_VARIABLE, read_password
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_users import ITERATIONS_DEFAULT
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.scram import SCRAM_BY_NAME
from ottla.model.visible_text import visible

COLUMNS = ("USER", "MECHANISM", "ITERATIONS")
MECHANISM_DEFAULT = "SCRAM-SHA-512"


async def list_users(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla user list`: list the SCRAM credentials of all users, without passwords. Returns the
    exit code."""
    found = await admin.describe_users()
    rows = [(user, one.mechanism, one.iterations) for user in sorted(found) for one in found[user]]
    show(arguments, COLUMNS, rows, command="user")
    return 0


async def add_user(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla user add`: set a user's password. Returns the exit code."""
    password = read_password(arguments.password_file, arguments.user)
    await admin.set_password(
        arguments.user, arguments.mechanism, password, iterations=arguments.iterations
    )
    say(f"{visible(arguments.user)} logs in by {arguments.mechanism}")
    return 0


async def delete_user(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla user delete`: delete a user's SCRAM credentials if the user confirms. Returns the exit
    code."""
    found = (await admin.describe_users()).get(arguments.user, [])
    mechanisms = [one.mechanism for one in found if arguments.mechanism in (None, one.mechanism)]
    if not mechanisms:
        raise RefusedError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"{arguments.user} has no such credential; see 'ottla user list'",
        )
    question = f"delete the credentials of {visible(arguments.user)}?"
    if not await confirm_in_loop(arguments, question):
        return 0
    for mechanism in mechanisms:
        await admin.delete_password(arguments.user, mechanism)
    say(f"{visible(arguments.user)} logs in by {', '.join(mechanisms)} no longer")
    return 0


VERBS = (
    admin_verb("list", "list users and their credentials", list_users),
    admin_verb(
        "add",
        "set the password of a user",
        add_user,
        option("user USER", "name of the user"),
        option(
            "--mechanism",
            "mechanism the user logs in by (default: %(default)s)",
            choices=tuple(SCRAM_BY_NAME),
            default=MECHANISM_DEFAULT,
        ),
        option(
            "--iterations ITERATIONS",
            "iterations of the hash, 4096 to 16384 (default: %(default)s)",
            type=int,
            default=ITERATIONS_DEFAULT,
        ),
        option(
            "--password-file FILE",
            f"file with the password (default: {PASSWORD_VARIABLE}, else a prompt)",
        ),
        has_format=False,
    ),
    admin_verb(
        "delete",
        "delete the credentials of a user",
        delete_user,
        option("user USER", "name of the user"),
        option(
            "--mechanism",
            "mechanism to delete the credentials of (default: all of them)",
            choices=tuple(SCRAM_BY_NAME),
        ),
        YES,
        has_format=False,
    ),
)
