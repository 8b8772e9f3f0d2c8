"""`ottla cluster balance`: evens out the bytes, replicas and leaders of the brokers.

The command makes a plan of moves. The controllers carry it out, even if the command is interrupted.
"""

import argparse
import json
import time
from pathlib import Path

import trio

from ottla.cli.cluster.balance.plan_changes import (
    cancel_plan,
    check_idle,
    lowest_rate,
    start_plan,
)
from ottla.cli.cluster.balance.plan_progress import PlanProgress, progress_of
from ottla.cli.cluster.balance.plan_tables import progress_json, show_plan, show_progress
from ottla.cli.cluster.moves.move_bars import MoveBar, bars
from ottla.cli.cluster.moves.reassignment_plan import as_plan
from ottla.cli.cluster.moves.reassignment_requests import copied_parts_of
from ottla.cli.cluster.moves.throttles import rate_of
from ottla.cli.common import counted, print_json
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.options import one_of, option
from ottla.cli.terminal import draw_lines, is_watched, note
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.insight.facts.cluster_load_driver import cluster_load
from ottla.insight.facts.reassignments_driver import ongoing_of
from ottla.insight.facts.replica_assignments import ReplicaAssignment
from ottla.insight.facts.stored_plan import read_stored_plan
from ottla.model.balance.cluster_load import BalanceLimits, ClusterLoad
from ottla.model.balance.move_plan import BalancePlan
from ottla.model.balance.planner import plan_moves
from ottla.model.errors import ConfigError, ErrorCode, RefusedError

LOOK_AGAIN_S = 0.5
IDLE_LOOKS = 2
"""Number of consecutive checks without a plan after which the plan counts as complete. The broker
that answers the first check may not know the plan yet."""
LEFT = (
    "the controllers go on with the moves; 'ottla cluster balance --status' shows them, --cancel "
    "undoes those that are not complete"
)


async def balance(admin: Admin, arguments: argparse.Namespace) -> int:
    """Plan moves that balance the cluster, and start them if the user confirms. Depending on the
    options, show or cancel the moves in progress instead. Returns the exit code."""
    if arguments.status:
        return await _status(admin, arguments)
    if arguments.cancel:
        return await _cancel(admin, arguments)
    throttle = rate_of("--throttle", arguments.throttle)
    if not 1 <= arguments.moves_max <= BalanceLimits().moves_max:
        raise ConfigError("--moves-max", f"is {arguments.moves_max}; give 1 to 1000")
    await check_idle(admin)
    limits = BalanceLimits(throttle_bytes_per_s=throttle, moves_max=arguments.moves_max)
    load = await cluster_load(admin)
    plan = plan_moves(load, limits)
    if plan.is_refused:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"nothing moves: {plan.unmoved[0].reason}")
    if arguments.save:
        targets = [ReplicaAssignment(*move.at, move.after) for move in plan.moves]
        Path(arguments.save).write_text(json.dumps(as_plan(targets)) + "\n")
    show_plan(arguments, plan, throttle)
    if not plan.moves:
        note("the cluster is balanced, as far as its partitions may move")
        return 0
    if await confirm_in_loop(arguments, f"change {counted(len(plan.moves), 'partition')}?"):
        await make_moves(admin, load, plan, throttle, is_waiting=not arguments.no_wait)
    return 0


async def make_moves(
    admin: Admin, load: ClusterLoad, plan: BalancePlan, throttle: int, *, is_waiting: bool
) -> None:
    """Start the moves of a plan and, with `is_waiting`, show their progress until all are complete.
    `throttle` is in bytes per second."""
    await start_moves(admin, load, plan, throttle)
    if not is_waiting:
        note(LEFT)
        return
    started = time.monotonic()
    try:
        await watch_plan(admin, len(plan.moves))
    except BaseException:  # an interrupted command, too: the moves continue without it
        note(LEFT)
        raise
    seconds = time.monotonic() - started
    note(f"{counted(len(plan.moves), 'partition')} changed in {seconds:.1f} s")


async def start_moves(admin: Admin, load: ClusterLoad, plan: BalancePlan, throttle: int) -> None:
    """Start the moves of a plan, under a throttle that is not below the rate of the producers."""
    copied = {move.at for move in plan.moves if move.adding}
    produced = [one.produce_bytes_per_s for one in load.partitions if one.at in copied]
    lowest = lowest_rate(produced, throttle)
    await start_plan(admin, plan, rate_max=throttle, rate_min=lowest)


async def watch_plan(admin: Admin, total: int) -> None:
    """Draw the progress of the plan in the cluster until all its `total` moves are complete."""
    line_count, idle_looks = 0, 0
    while idle_looks < IDLE_LOOKS:
        stored = await read_stored_plan(admin)
        idle_looks = 0 if stored.moves else idle_looks + 1
        if stored.moves and is_watched():
            planned = {move.at for move in stored.moves}
            moving = [one for one in await ongoing_of(admin, ()) if one.at in planned]
            parts = await copied_parts_of(admin, moving)
            drawn = [
                MoveBar(parts[one.at], one.name, ",".join(map(str, one.target))) for one in moving
            ]
            waiting = [MoveBar(0.0, str(one.at), "") for one in stored.moves if one.at not in parts]
            lines = bars([*drawn, *waiting], max(total, len(planned)), "partition")
            draw_lines(lines, line_count_before=line_count)
            line_count = len(lines)
        await trio.sleep(LOOK_AGAIN_S)
    if is_watched():
        draw_lines([], line_count_before=line_count)


async def _status(admin: Admin, arguments: argparse.Namespace) -> int:
    stored = await read_stored_plan(admin)
    progress = await progress_of(admin, stored) if stored.moves else PlanProgress((), stored.rate)
    if arguments.format == "json":
        print_json(progress_json(progress))
        return 0
    show_progress(progress)
    if not stored.moves:
        note("no plan is in progress")
    return 0


async def _cancel(admin: Admin, arguments: argparse.Namespace) -> int:
    stored = await read_stored_plan(admin)
    if stored.moves:
        await cancel_plan(admin)
    if arguments.format == "json":
        print_json({"cancelled": len(stored.moves)})
    elif stored.moves:
        note(
            f"{counted(len(stored.moves), 'move')} cancelled; the partitions that had moved "
            "already stay where they are"
        )
    else:
        note("no plan is in progress")
    return 0


BALANCE = admin_verb(
    "balance",
    "make bytes, replicas and leaders of the brokers even",
    balance,
    CONFIRMATION,
    one_of(
        option("--status", "show the moves in progress, with the estimated time left"),
        option("--cancel", "cancel the moves that are not complete, and restore their replicas"),
        option("--save FILE", "file to write the plan to, for 'ottla topic reassign --plan'"),
    ),
    option(
        "--throttle RATE",
        "highest rate in bytes per second to and from each broker; it falls while the moves slow "
        "down producers (default: 20M)",
        default="20M",
    ),
    option(
        "--moves-max COUNT",
        "largest number of partitions that the plan changes (default: 1000)",
        type=int,
        default=1_000,
    ),
    option("--no-wait", "return when the moves have started"),
    description="Shows the elections and moves after which each broker deviates from the mean by "
    "at most 10 %, with the reason for each move and for each that is not made. Replicas of a "
    "partition stay on distinct racks and hosts, and no disk becomes more than 80 % full. The "
    "controllers make the moves, two at a time on a broker.",
)
