"""Stores the plan of replica moves that the cluster carries out, and removes it.

The controllers make the moves of the plan. The moves continue after the client that stored the plan
has ended, and after a controller has failed.
"""

from collections.abc import Collection, Iterable, Sequence

from ottla.client.admin import Admin
from ottla.insight.facts.stored_plan import read_stored_plan
from ottla.model.balance.cluster_load import ClusterLoad
from ottla.model.balance.move_plan import BalancePlan
from ottla.model.balance.plan_text import StoredMove, moves_text
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.balance import (
    BALANCE_PLAN,
    BALANCE_RATE_MAX,
    BALANCE_RATE_MIN,
    DEFAULT_RATE_MIN,
)

AT_A_TIME = 2
"""Maximum number of simultaneous replica copies in which one broker takes part. The controllers
enforce this limit."""


async def check_idle(admin: Admin) -> None:
    """Raise RefusedError if the cluster already carries out a plan of replica moves."""
    stored = await read_stored_plan(admin)
    if stored.moves:
        raise RefusedError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"a plan with {len(stored.moves)} moves is in progress; see 'ottla cluster balance "
            "--status', or end it with --cancel",
        )


def stored_moves_of(plan: BalancePlan) -> list[StoredMove]:
    """Return the replica moves of a plan in the form in which the cluster stores them."""
    return [StoredMove(move.at, move.before, move.after) for move in plan.moves]


async def start_plan(
    admin: Admin, load: ClusterLoad, moves: Sequence[StoredMove], rate_max: int
) -> None:
    """Store replica moves in the cluster as a plan, which the controllers carry out. `rate_max` is
    the maximum throttle in bytes per second. The minimum is above the rate of the producers in
    `load`."""
    rate_min = lowest_rate(
        produce_rates(load, {move.at for move in moves if move.adding}), rate_max
    )
    changes = {
        BALANCE_PLAN: moves_text(moves),
        BALANCE_RATE_MAX: str(rate_max),
        BALANCE_RATE_MIN: str(rate_min),
    }
    try:
        await admin.alter_broker_configs(None, changes)
    except RefusedError:
        # The answer to a first attempt may be lost, and the second attempt finds the plan.
        stored = await read_stored_plan(admin)
        if not stored.moves or not set(stored.moves).issubset(moves):
            raise


async def cancel_plan(admin: Admin) -> None:
    """Cancel the replica moves of the plan that the cluster carries out, and end their throttle."""
    await admin.alter_broker_configs(None, {BALANCE_PLAN: None})


def produce_rates(load: ClusterLoad, copied: Collection[TopicPartition]) -> list[int]:
    """Return the rates, in bytes per second, at which producers write to each partition that is
    copied."""
    return [one.produce_bytes_per_s for one in load.partitions if one.at in copied]


def lowest_rate(produced: Iterable[int], rate_max: int) -> int:
    """Return the lowest throttle for replica moves, in bytes per second, at which the copies still
    catch up with producers.

    `produced` has the produce rates of the partitions that are copied, in bytes per second. The
    result is based on the `AT_A_TIME` highest rates, because a broker takes part in up to
    `AT_A_TIME` copies at the same time.
    """
    highest = sorted(produced, reverse=True)[:AT_A_TIME]
    return min(max(DEFAULT_RATE_MIN, 2 * sum(highest)), rate_max)
