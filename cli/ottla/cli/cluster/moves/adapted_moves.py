"""Starts replica moves that an operator chose. The controllers carry them out, as they carry out
the moves of `ottla cluster balance`.

All moves share one throttle. The controllers lower the throttle while producers wait longer than
before the moves.
"""

from collections.abc import Sequence

from ottla.cli.cluster.moves.plan_watch import run_plan
from ottla.cli.cluster.moves.reassignment_plan import Move
from ottla.client.admin import Admin
from ottla.insight.changes.move_plan_driver import check_idle
from ottla.insight.facts.cluster_load_driver import cluster_load
from ottla.model.balance.plan_text import MOVES_MAX, StoredMove
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId

DEFAULT_RATE = 20_000_000
"""Default maximum rate of replica moves, in bytes per second. The default of `ottla cluster
balance` is the same."""


async def check_adaptable(admin: Admin, moves: Sequence[Move]) -> None:
    """Raise ConfigError if the controllers cannot carry out these replica moves. Raises
    RefusedError if they are already carrying out other moves."""
    if len(moves) > MOVES_MAX:
        raise ConfigError("--adapt", f"takes {MOVES_MAX} moves at most, and {len(moves)} are asked")
    changed = [move for move in moves if len(move.before.replicas) != len(move.after.replicas)]
    if changed:
        raise ConfigError("--adapt", f"cannot change the number of replicas of {changed[0].at}")
    await check_idle(admin)


async def make_adapted(
    admin: Admin, moves: Sequence[Move], rate: int | None, *, is_waiting: bool
) -> None:
    """Start replica moves that the controllers carry out. With `is_waiting`, show the progress
    until all moves are complete. `rate` is the highest throttle in bytes per second, or None for
    the default."""
    stored = [
        StoredMove(move.at, _ids(move.before.replicas), _ids(move.after.replicas)) for move in moves
    ]
    throttle = DEFAULT_RATE if rate is None else rate
    await run_plan(admin, await cluster_load(admin), stored, throttle, is_waiting=is_waiting)


def _ids(replicas: Sequence[int]) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, replicas))
