"""`ottla cluster balance`: even bytes, replicas and leaders of the brokers."""

import argparse
import json
from pathlib import Path

from ottla.cli.cluster.balance.cluster_loads import cluster_load
from ottla.cli.cluster.balance.plan_tables import show_plan
from ottla.cli.cluster.moves.reassignment_plan import ReplicaAssignment, as_plan
from ottla.cli.cluster.moves.throttles import rate_of
from ottla.cli.options import option
from ottla.cli.terminal import note
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.model.balance.cluster_load import BalanceLimits
from ottla.model.balance.planner import plan_moves
from ottla.model.errors import ConfigError, ErrorCode, RefusedError


async def balance(admin: Admin, arguments: argparse.Namespace) -> int:
    """Plan moves that balance the cluster, and show them. Returns the exit code."""
    throttle = rate_of("--throttle", arguments.throttle)
    if not 1 <= arguments.moves_max <= BalanceLimits().moves_max:
        raise ConfigError("--moves-max", f"is {arguments.moves_max}; give 1 to 1000")
    limits = BalanceLimits(throttle_bytes_per_s=throttle, moves_max=arguments.moves_max)
    plan = plan_moves(await cluster_load(admin), limits)
    if plan.is_refused:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"nothing moves: {plan.unmoved[0].reason}")
    if arguments.save:
        targets = [ReplicaAssignment(*move.at, move.after) for move in plan.moves]
        Path(arguments.save).write_text(json.dumps(as_plan(targets)) + "\n")
    show_plan(arguments, plan, throttle)
    if not plan.moves:
        note("the cluster is balanced, as far as its partitions may move")
    return 0


BALANCE = admin_verb(
    "balance",
    "make bytes, replicas and leaders of the brokers even",
    balance,
    option("--dry-run", "show the plan without making it (the default)"),
    option("--save FILE", "file to write the plan to, for 'ottla topic reassign --plan'"),
    option(
        "--throttle RATE",
        "limit in bytes per second to and from each broker (default: 20M)",
        default="20M",
    ),
    option(
        "--moves-max COUNT",
        "largest number of partitions that the plan changes (default: 1000)",
        type=int,
        default=1_000,
    ),
    description="Shows the elections and moves after which each broker deviates from the mean by "
    "at most 10 %, with the reason for each move and for each that is not made. Replicas of a "
    "partition stay on distinct racks and hosts, and no disk becomes more than 80 % full.",
)
