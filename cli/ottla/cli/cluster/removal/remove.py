"""`ottla broker remove`: moves a broker's replicas away, waits until it has stopped, and
unregisters it.

Each step starts from the cluster's present state, so a second run of the command resumes where the
first one ended.
"""

import argparse

from ottla.cli.cluster.moves.plan_watch import watch_plan
from ottla.cli.cluster.moves.reassign import watch_moves
from ottla.cli.cluster.moves.throttles import rate_of
from ottla.cli.common import counted, print_json
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.tables import ByteCount
from ottla.cli.terminal import note, say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.insight.changes.broker_removal_driver import (
    MOVE_TIMEOUT_S,
    STOP_TIMEOUT_S,
    remove_broker,
)
from ottla.insight.facts.reassignments_driver import ongoing_of
from ottla.insight.facts.removal_driver import removal_of
from ottla.insight.rules.plan import plan_text
from ottla.model.ids import TopicPartition

STILL_RUNS = 2


async def remove(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla broker remove`: show the moves that empty a broker of its replicas. If the user
    confirms, make them, wait until the broker has stopped, and unregister it. Returns exit code
    STILL_RUNS if the broker did not stop."""
    broker_id = arguments.id
    throttle = rate_of("--throttle", arguments.throttle)
    found = await removal_of(admin, broker_id, throttle)
    if not arguments.yes:
        rows = [
            (*move.at, move.before, move.after, ByteCount(move.copied_bytes))
            for move in found.plan.moves
        ]
        show(arguments, ("TOPIC", "PARTITION", "WAS", "REPLICAS", "BYTES-TO-COPY"), rows)
        note(plan_text(found.plan, throttle))
    if not await confirm_in_loop(arguments, f"make these moves, and remove broker {broker_id}?"):
        return 0
    result = await remove_broker(
        admin,
        broker_id,
        note,
        throttle=throttle,
        watch=_watch,
        timeout_s=arguments.timeout,
        stop_timeout_s=arguments.stop_timeout,
    )
    if result.left:
        note(result.left)
    if arguments.format == "json":
        print_json(
            {
                "id": broker_id,
                "moved_partitions": result.moved_count,
                "unregistered": result.is_removed,
            }
        )
    elif result.is_removed:
        say(f"broker {broker_id} is removed: {counted(result.moved_count, 'partition')} moved")
    if not result.is_removed:
        note(
            f"broker {broker_id} holds no replica, and still runs; stop it, then run "
            f"'ottla broker remove {broker_id} --yes' again"
        )
    return 0 if result.is_removed else STILL_RUNS


async def _watch(admin: Admin, wanted: set[TopicPartition]) -> None:
    """Draw the progress of the moves on the terminal until all of them are complete."""
    await watch_plan(admin, len(wanted))
    ongoing = {one.at for one in await ongoing_of(admin, ())}
    if ongoing & wanted:
        await watch_moves(admin, ongoing & wanted)


REMOVE = admin_verb(
    "remove",
    "move a broker's replicas away, wait until it is stopped, unregister it",
    remove,
    option("id ID", "node.id of the broker", type=int),
    CONFIRMATION,
    option(
        "--throttle RATE",
        "highest rate of the moves in bytes per second to and from each broker (default: 20M)",
        default="20M",
    ),
    option(
        "--timeout SECONDS",
        "time to wait for the moves, which continue afterwards, in seconds (default: 3600)",
        type=float,
        default=MOVE_TIMEOUT_S,
    ),
    option(
        "--stop-timeout SECONDS",
        "time to wait until the broker is stopped, in seconds (default: 600)",
        type=float,
        default=STOP_TIMEOUT_S,
    ),
    description="A run that was "
    "interrupted or timed out is resumed by the same command. Exit codes: 0 removed, "
    "1 refused or not moved in time, 2 the broker was not stopped in time.",
)
