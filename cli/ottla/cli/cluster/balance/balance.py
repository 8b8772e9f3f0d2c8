"""`ottla cluster balance`: evens out the bytes, replicas and leaders of the brokers.

The command makes a plan of moves. The controllers carry it out, even if the command is interrupted.
"""

import argparse
import json
from pathlib import Path

from ottla.cli.cluster.balance.plan_progress import PlanProgress, progress_of
from ottla.cli.cluster.balance.plan_tables import progress_json, show_plan, show_progress
from ottla.cli.cluster.moves.plan_watch import run_plan
from ottla.cli.cluster.moves.reassignment_plan import as_plan
from ottla.cli.cluster.moves.throttles import rate_of
from ottla.cli.common import counted, print_json
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.options import one_of, option
from ottla.cli.terminal import note
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.insight.changes.move_plan_driver import cancel_plan, check_idle, stored_moves_of
from ottla.insight.facts.cluster_load_driver import cluster_load
from ottla.insight.facts.replica_assignments import ReplicaAssignment
from ottla.insight.facts.stored_plan import read_stored_plan
from ottla.model.balance.cluster_load import BalanceLimits
from ottla.model.balance.planner import plan_moves
from ottla.model.errors import ConfigError, ErrorCode, RefusedError


async def balance(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla cluster balance`: plan moves that balance the cluster, and start them if the user
    confirms. Depending on the options, show or cancel the moves in progress instead. Returns the
    exit code."""
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
        moves = stored_moves_of(plan)
        await run_plan(admin, load, moves, throttle, is_waiting=not arguments.no_wait)
    return 0


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
