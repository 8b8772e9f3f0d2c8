"""`ottla broker remove`: moves a broker's replicas away, waits until it has stopped, and
unregisters it.

Each step starts from the cluster's present state, so a second run resumes where the first ended.
"""

import argparse

import trio

from ottla.cli.cluster.moves.plan_changes import check_idle, start_plan, stored_moves_of
from ottla.cli.cluster.moves.plan_watch import watch_plan
from ottla.cli.cluster.moves.reassign import watch_moves
from ottla.cli.cluster.moves.throttles import rate_of
from ottla.cli.cluster.removal.cordon import set_cordon
from ottla.cli.cluster.removal.removal_plan import catch_up_text
from ottla.cli.cluster.removal.unregister import (
    is_running,
    note_left,
    request_unregister,
)
from ottla.cli.common import counted, print_json
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.tables import ByteCount
from ottla.cli.terminal import note, say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.insight.facts.reassignments_driver import in_sync_of, ongoing_of
from ottla.insight.facts.removal_driver import removal_of
from ottla.insight.facts.stored_plan import read_stored_plan
from ottla.insight.facts.survey_driver import brokers_of
from ottla.insight.rules.plan import plan_text
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition

ROUNDS_MAX = 500
"""Maximum number of plans of replica moves that `ottla broker remove` makes one after the other. A
plan has at most 1,000 moves. Topics created in the meantime may place further replicas on a broker
that is down."""
ASK_AGAIN_S = 0.5
STOP_TIMEOUT_S = 600.0
MOVE_TIMEOUT_S = 3_600.0
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
    # Neither new topics nor a balance may give it replicas while it is emptied.
    await set_cordon(admin, broker_id, is_cordoned=True)
    ends_at_s = trio.current_time() + arguments.timeout
    moved = await _move_away(admin, broker_id, throttle, ends_at_s)
    is_stopped = await _wait_stopped(admin, broker_id, arguments.stop_timeout)
    if is_stopped:
        # The operator may have taken long to stop the broker. Replicas that were placed on the
        # broker in the meantime are therefore moved under a new timeout.
        ends_at_s = trio.current_time() + arguments.timeout
        moved |= await _move_away(admin, broker_id, throttle, ends_at_s)
        # The setting would apply to the next broker with this id.
        await set_cordon(admin, broker_id, is_cordoned=False)
        await request_unregister(admin, broker_id)
        await note_left(admin, broker_id)
    if arguments.format == "json":
        result = {"id": broker_id, "moved_partitions": len(moved), "unregistered": is_stopped}
        print_json(result)
    elif is_stopped:
        say(f"broker {broker_id} is removed: {counted(len(moved), 'partition')} moved")
    if not is_stopped:
        note(
            f"broker {broker_id} holds no replica, and still runs; stop it, then run "
            f"'ottla broker remove {broker_id} --yes' again"
        )
    return 0 if is_stopped else STILL_RUNS


async def _move_away(
    admin: Admin, broker_id: int, throttle: int, ends_at_s: float
) -> set[TopicPartition]:
    """Move replicas away from a broker until it has none. `ends_at_s` is the deadline. Returns the
    partitions that moved."""
    moved: set[TopicPartition] = set()
    for _ in range(ROUNDS_MAX):
        stored = await read_stored_plan(admin)
        if stored.moves:
            # An earlier run of this command was interrupted, and its moves go on.
            if not all(
                broker_id in move.before and broker_id not in move.after for move in stored.moves
            ):
                await check_idle(admin)
            moving = {move.at for move in stored.moves}
        else:
            found = await removal_of(admin, broker_id, throttle)
            moving = found.partitions
            if not moving:
                return moved
            if found.plan.moves:
                await start_plan(admin, found.load, stored_moves_of(found.plan), throttle)
        await _watch(admin, broker_id, moving, ends_at_s)
        moved |= moving
    raise RefusedError(
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        f"broker {broker_id} is given new replicas all the time; stop it, then run "
        f"'ottla broker remove {broker_id} --yes' again",
    )


async def _watch(
    admin: Admin, broker_id: int, wanted: set[TopicPartition], ends_at_s: float
) -> None:
    """Wait until the reassignments of the wanted partitions have ended. Raises RefusedError at the
    deadline `ends_at_s`."""
    with trio.move_on_at(ends_at_s) as scope:
        await watch_plan(admin, len(wanted))
        ongoing = {one.at for one in await ongoing_of(admin, ())}
        if ongoing & wanted:
            await watch_moves(admin, ongoing & wanted)
    if not scope.cancelled_caught:
        return
    moving = [one for one in await ongoing_of(admin, ()) if one.at in wanted]
    if not moving and not (await read_stored_plan(admin)).moves:
        return
    in_sync = await in_sync_of(admin, {one.at.topic for one in moving}) if moving else {}
    raise RefusedError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"{catch_up_text(moving, in_sync)}; the moves go on: run "
        f"'ottla broker remove {broker_id} --yes' again, or call them back with "
        "'ottla cluster balance --cancel'",
    )


async def _wait_stopped(admin: Admin, broker_id: int, timeout_s: float) -> bool:
    is_asked = False
    ends_at = trio.current_time() + timeout_s
    while True:
        found = await brokers_of(admin, only=broker_id)
        if not any(is_running(one) for one in found):
            return True
        if trio.current_time() >= ends_at:
            return False
        if not is_asked:
            note(f"broker {broker_id} holds no replica any longer: stop it now (SIGTERM); waiting")
            is_asked = True
        await trio.sleep(ASK_AGAIN_S)


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
