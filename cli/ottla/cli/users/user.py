"""`ottla user list|add|delete`."""

import argparse

from ottla.cli.common import (
    add_cluster_arguments,
    add_format_argument,
    bootstrap_of,
    run_async,
)
from ottla.cli.outcomes import show
from ottla.cli.terminal import say
from ottla.cli.users.password import PASSWORD_VARIABLE, read_password
from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_users import ITERATIONS_DEFAULT
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.scram import SCRAM_BY_NAME
from ottla.model.visible_text import visible

COLUMNS = ("USER", "MECHANISM", "ITERATIONS")
MECHANISM_DEFAULT = "SCRAM-SHA-512"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of 'ottla user'."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    list_ = verbs.add_parser("list", help="list users and their credentials")
    add = verbs.add_parser("add", help="set the password of a user")
    delete = verbs.add_parser("delete", help="delete the credentials of a user")
    for verb in (add, delete):
        verb.add_argument("user", metavar="USER", help="name of the user")
    add.add_argument(
        "--mechanism",
        choices=tuple(SCRAM_BY_NAME),
        default=MECHANISM_DEFAULT,
        help="mechanism the user logs in by (default: %(default)s)",
    )
    add.add_argument(
        "--iterations",
        type=int,
        default=ITERATIONS_DEFAULT,
        help="iterations of the hash, 4096 to 16384 (default: %(default)s)",
    )
    add.add_argument(
        "--password-file",
        metavar="FILE",
        help=f"file with the password (default: {PASSWORD_VARIABLE}, else a prompt)",
    )
    delete.add_argument(
        "--mechanism",
        choices=tuple(SCRAM_BY_NAME),
        help="mechanism to delete the credentials of (default: all of them)",
    )
    for verb in (list_, add, delete):
        add_cluster_arguments(verb)
    add_format_argument(list_)


def run(arguments: argparse.Namespace) -> int:
    """Run one verb against the cluster."""

    async def body() -> int:
        async with open_admin(bootstrap_of(arguments)) as admin:
            return await VERBS[arguments.verb](admin, arguments)

    return run_async(body)


async def list_users(admin: Admin, arguments: argparse.Namespace) -> int:
    """List the credentials of all users."""
    found = await admin.describe_users()
    rows = [(user, one.mechanism, one.iterations) for user in sorted(found) for one in found[user]]
    show(arguments, COLUMNS, rows, command="user")
    return 0


async def add_user(admin: Admin, arguments: argparse.Namespace) -> int:
    """Give a user a password."""
    password = read_password(arguments.password_file, arguments.user)
    await admin.set_password(
        arguments.user, arguments.mechanism, password, iterations=arguments.iterations
    )
    say(f"{visible(arguments.user)} logs in by {arguments.mechanism}")
    return 0


async def delete_user(admin: Admin, arguments: argparse.Namespace) -> int:
    """Take a user's credentials away."""
    found = (await admin.describe_users()).get(arguments.user, [])
    mechanisms = [one.mechanism for one in found if arguments.mechanism in (None, one.mechanism)]
    if not mechanisms:
        raise RefusedError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"{arguments.user} has no such credential; see 'ottla user list'",
        )
    for mechanism in mechanisms:
        await admin.delete_password(arguments.user, mechanism)
    say(f"{visible(arguments.user)} logs in by {', '.join(mechanisms)} no longer")
    return 0


VERBS = {"list": list_users, "add": add_user, "delete": delete_user}
