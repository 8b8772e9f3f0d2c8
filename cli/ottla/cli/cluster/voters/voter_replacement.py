"""`ottla quorum replace`: replaces a voter by another controller, or by the same controller with a
new directory.

The command may be repeated after a failure. It then performs only the remaining steps.
"""

import argparse

from ottla.cli.cluster.voters.voter_requests import TIMEOUT, confirm_steps, note_progress
from ottla.cli.common import print_json
from ottla.cli.confirmation import CONFIRMATION
from ottla.cli.options import option
from ottla.cli.terminal import say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.insight.changes.controller_registrations_driver import unregister_controller
from ottla.insight.changes.voter_changes_driver import (
    change_voters,
    check_additions,
    described_quorum,
)
from ottla.insight.changes.voter_plans import parse_voter, plan_replacement
from ottla.model.ids import NodeId
from ottla.storage.directories.meta_properties import uuid_to_text


async def replace(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quorum replace`: replace a voter of the controller quorum. Returns the exit code."""
    old_id = NodeId(arguments.id)
    by = None if arguments.by is None else parse_voter("--by", arguments.by)
    quorum = await described_quorum(admin)
    plan = plan_replacement(quorum, old_id, by, arguments.address or "")
    await check_additions(quorum, plan)
    if plan.steps:
        if not await confirm_steps(arguments, plan, f"replace voter {old_id}?"):
            return 0
        await change_voters(admin, plan, note_progress, arguments.timeout)
        if arguments.unregister and plan.voter.id != old_id:
            await unregister_controller(admin, old_id, arguments.timeout)
    if arguments.format == "json":
        directory = uuid_to_text(plan.voter.directory_id)
        print_json({"id": plan.voter.id, "directory_id": directory, "replaced": arguments.id})
    else:
        say(plan.result)
    return 0


REPLACE = admin_verb(
    "replace",
    "replace a voter whose directory is lost, or by another controller",
    replace,
    option("id ID", "node.id of the voter to replace", type=int),
    option(
        "--by ID@HOST:PORT:DIRECTORY",
        "another controller that takes its place (default: the same one with its new directory)",
    ),
    option("--address HOST:PORT", "address of the same controller (default: as before)"),
    option("--unregister", "delete the registration of the old controller, too"),
    CONFIRMATION,
    TIMEOUT,
    description="Another controller is added before the old one is removed. A lost directory is "
    "removed before the new one is added, if the other voters are a majority. The command may be "
    "repeated: it does the steps that are left.",
)
