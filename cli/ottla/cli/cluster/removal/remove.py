"""`ottla broker remove`: move a broker's replicas away, wait for its stop, unregister it.

Each step starts from the cluster's present state, so a second run resumes where the first ended.
"""

import argparse

import trio

from ottla.cli.cluster.moves.reassign import watch_moves
from ottla.cli.cluster.moves.reassignment_requests import (
    in_sync_of,
    ongoing_of,
    places_of,
    start,
)
from ottla.cli.cluster.removal.removal_plan import RemovalPlan, catch_up_text, plan_removal
from ottla.cli.cluster.removal.unregister import (
    is_running,
    not_registered,
    note_left,
    request_unregister,
)
from ottla.cli.cluster.survey import brokers_of, registered
from ottla.cli.common import counted, print_json
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.terminal import note, say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition

ROUNDS_MAX = 5
"""Largest number of successive plans: topics created meanwhile may place replicas on the broker
again."""
ASK_AGAIN_S = 0.5
STOP_TIMEOUT_S = 600.0
MOVE_TIMEOUT_S = 3_600.0
STILL_RUNS = 2


async def remove(admin: Admin, arguments: argparse.Namespace) -> int:
    """Show the moves that free a broker of replicas. Once confirmed, move them, wait until the
    broker has stopped, and unregister it. Returns exit code STILL_RUNS if it did not stop."""
    broker_id = arguments.id
    plan = await _plan(admin, broker_id)
    if not arguments.yes:
        rows = [(*move.at, move.before.replicas, move.after.replicas) for move in plan.moves]
        show(arguments, ("TOPIC", "PARTITION", "WAS", "REPLICAS"), rows)
    if not await confirm_in_loop(arguments, f"make these moves, and remove broker {broker_id}?"):
        return 0
    ends_at_s = trio.current_time() + arguments.timeout
    moved = await _move_away(admin, broker_id, plan, ends_at_s)
    is_stopped = await _wait_stopped(admin, broker_id, arguments.stop_timeout)
    if is_stopped:
        # The operator may have taken long to stop the broker. Replicas that were placed on the
        # broker in the meantime are therefore moved under a new timeout.
        ends_at_s = trio.current_time() + arguments.timeout
        moved |= await _move_away(admin, broker_id, await _plan(admin, broker_id), ends_at_s)
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


async def _plan(admin: Admin, broker_id: int) -> RemovalPlan:
    known = await registered(admin)
    if all(one.id != broker_id for one in known):
        raise not_registered(broker_id)
    ongoing = await ongoing_of(admin, ())
    alive = {one.id: one.rack for one in known if not one.is_fenced}
    places = await places_of(admin, None)
    if broker_id in alive:
        return plan_removal(broker_id, places, ongoing, alive, is_alive=True)
    topics = {one.topic for one in places if broker_id in one.replicas}
    in_sync = await in_sync_of(admin, topics) if topics else {}
    leaderless = {at for at, found in in_sync.items() if found is None}
    return plan_removal(broker_id, places, ongoing, alive, is_alive=False, leaderless=leaderless)


async def _move_away(
    admin: Admin, broker_id: int, plan: RemovalPlan, ends_at_s: float
) -> set[TopicPartition]:
    """Reassign until the broker has no replicas.  Returns the partitions that moved."""
    moved: set[TopicPartition] = set()
    for _ in range(ROUNDS_MAX):
        if not plan.partitions:
            return moved
        refusals = await start(admin, plan.moves) if plan.moves else {}
        for refusal in refusals.values():
            raise refusal
        await _watch(admin, broker_id, set(plan.partitions), ends_at_s)
        moved |= plan.partitions
        plan = await _plan(admin, broker_id)
    if not plan.partitions:
        return moved
    raise RefusedError(
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        f"broker {broker_id} is given new replicas all the time; stop it, then run "
        f"'ottla broker remove {broker_id} --yes' again",
    )


async def _watch(
    admin: Admin, broker_id: int, wanted: set[TopicPartition], ends_at_s: float
) -> None:
    with trio.move_on_at(ends_at_s) as scope:
        await watch_moves(admin, wanted)
    if not scope.cancelled_caught:
        return
    moving = [one for one in await ongoing_of(admin, ()) if one.at in wanted]
    if not moving:
        return
    in_sync = await in_sync_of(admin, {one.at.topic for one in moving})
    raise RefusedError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"{catch_up_text(moving, in_sync)}; the moves go on: run "
        f"'ottla broker remove {broker_id} --yes' again, or call them back with "
        "'ottla topic reassign --cancel'",
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
