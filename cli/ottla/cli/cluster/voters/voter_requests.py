"""`ottla quorum add|remove|replicas`: shows the voters of the quorum, and changes them."""

import argparse

from ottla.cli.common import AT_CONTROLLERS, print_json
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.tables import Identifier, Milliseconds, print_table
from ottla.cli.terminal import note, say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.insight.changes.controller_registrations_driver import unregister_controller
from ottla.insight.changes.voter_changes_driver import (
    TIMEOUT_S,
    change_voters,
    check_additions,
    described_quorum,
)
from ottla.insight.changes.voter_plans import (
    VoterPlan,
    parse_voter,
    plan_addition,
    plan_removal,
)
from ottla.insight.facts.survey_driver import SurveyedReplica, quorum_of
from ottla.model.ids import NodeId
from ottla.storage.directories.meta_properties import uuid_to_text

UNKNOWN_STATE = 2
PLANNED = ("ID", "DIRECTORY", "ADDRESS", "CHANGE")
REPLICA_FIELDS = ("id", "directory_id", "role", "lag", "last_caught_up_ms_ago", "address")
REPLICAS = ("ID", "DIRECTORY", "ROLE", "LAG", "CAUGHT-UP-AGO", "ADDRESS")


async def add(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quorum add`: add a controller to the voters of the quorum. Returns the exit code."""
    new = parse_voter("ID@HOST:PORT:DIRECTORY", arguments.controller)
    quorum = await described_quorum(admin)
    plan = plan_addition(quorum, new)
    await check_additions(quorum, plan)
    question = f"add controller {new.id} to the voters?"
    if plan.steps and not await confirm_steps(arguments, plan, question):
        return 0
    await change_voters(admin, plan, note_progress, arguments.timeout)
    _report(arguments, plan, plan.result, added=True)
    return 0


async def remove(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quorum remove`: remove a controller from the voters of the quorum. Returns the exit
    code."""
    node = NodeId(arguments.id)
    plan = plan_removal(await described_quorum(admin), node, arguments.directory)
    question = f"remove controller {node} from the voters?"
    if not await confirm_steps(arguments, plan, question):
        return 0
    await change_voters(admin, plan, note_progress, arguments.timeout)
    said = plan.result
    if arguments.unregister:
        await unregister_controller(admin, node, arguments.timeout)
        said = (
            f"controller {node} is neither a voter nor registered any longer; if it still runs, "
            "it registers again"
        )
    _report(arguments, plan, said, removed=True)
    return 0


async def confirm_steps(arguments: argparse.Namespace, plan: VoterPlan, question: str) -> bool:
    """Show the steps of a change of the voters, and ask the user for confirmation. Returns True if
    the user confirms."""
    if not arguments.yes:
        rows = [
            (one.voter.id, Identifier(one.directory_id), one.address or None, one.change)
            for one in plan.steps
        ]
        show(arguments, PLANNED, rows)
    return await confirm_in_loop(arguments, question)


def note_progress(text: str) -> None:
    """Print a note about the progress of a change of the voters."""
    note(f"ottla quorum: {text}")


async def replicas(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quorum replicas`: print every voter and observer of the controller quorum. Returns
    exit code 2 if there is no leader."""
    quorum = await quorum_of(admin)
    if quorum.failure:
        note(f"ottla quorum: the controllers do not answer ({quorum.failure})")
        return UNKNOWN_STATE
    rows = [_row(one, "leader" if one.id == quorum.leader_id else "voter") for one in quorum.voters]
    rows += [_row(one, "observer") for one in quorum.observers]
    if arguments.format == "json":
        print_json([dict(zip(REPLICA_FIELDS, row, strict=True)) for row in rows])
    else:
        print_table(REPLICAS, rows)
    return 0


def _row(replica: SurveyedReplica, role: str) -> tuple[object, ...]:
    ago_ms = replica.last_caught_up_ms_ago
    return (
        replica.id,
        Identifier(replica.directory_id) if replica.directory_id else None,
        role,
        replica.lag,
        None if ago_ms is None else Milliseconds(ago_ms),
        replica.address or None,
    )


def _report(arguments: argparse.Namespace, plan: VoterPlan, said: str, **made: bool) -> None:
    if arguments.format == "json":
        directory = uuid_to_text(plan.voter.directory_id)
        print_json({"id": plan.voter.id, "directory_id": directory, **made})
    else:
        say(said)


TIMEOUT = option(
    "--timeout SECONDS",
    "longest time to try, while the controllers cannot make the change",
    type=float,
    default=TIMEOUT_S,
)

VOTER_VERBS = (
    admin_verb(
        "add",
        "add a controller, which runs and has caught up, to the voters",
        add,
        option(
            "controller ID@HOST:PORT:DIRECTORY",
            "node.id, address of the controller listener, and id of the metadata directory",
        ),
        CONFIRMATION,
        TIMEOUT,
        AT_CONTROLLERS,
        description="The controller runs as an observer first; 'ottla quorum replicas' shows its "
        "directory and how far it is behind. A change that timed out is looked up before it is "
        "requested again.",
    ),
    admin_verb(
        "remove",
        "remove a controller from the voters",
        remove,
        option("id ID", "node.id of the controller", type=int),
        option("--directory ID", "id of its metadata directory (default: looked up)"),
        option("--unregister", "delete its registration, too; stop the controller first"),
        CONFIRMATION,
        TIMEOUT,
        AT_CONTROLLERS,
        description="The last voter stays, and so does one without which the others are no "
        "majority. A change that timed out is looked up before it is requested again.",
    ),
    admin_verb(
        "replicas", "list voters and observers with lag and directory", replicas, AT_CONTROLLERS
    ),
)
