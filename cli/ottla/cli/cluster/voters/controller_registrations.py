"""`ottla quorum unregister`: deletes the registration of a controller that was removed from the
cluster."""

import argparse

from ottla.cli.common import AT_CONTROLLERS, print_json
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.terminal import note, say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.insight.changes.controller_registrations_driver import (
    TIMEOUT_S,
    check_controller_gone,
    unregister_controller,
)


async def unregister(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quorum unregister`: delete the registration of a controller, and return the exit code.
    Raises RefusedError if the controller is a voter, or is not registered."""
    node = arguments.id
    running = await check_controller_gone(admin, node)
    if running:
        note(f"ottla quorum: {running}")
    if not arguments.yes:
        show(arguments, ("ID", "CHANGE"), [(node, "unregister")])
    if not await confirm_in_loop(arguments, f"delete the registration of controller {node}?"):
        return 0
    await unregister_controller(admin, node, TIMEOUT_S)
    if arguments.format == "json":
        print_json({"id": node, "unregistered": True})
    else:
        say(f"controller {node} is unregistered")
    return 0


UNREGISTER = admin_verb(
    "unregister",
    "delete the registration of a controller that is gone",
    unregister,
    option("id ID", "node.id of the controller", type=int),
    CONFIRMATION,
    AT_CONTROLLERS,
    description="A registered controller that is gone blocks upgrades of features. Remove a voter "
    "with 'ottla quorum remove' first. A controller that still runs registers again.",
)
