"""Computes the progress of the balance plan (replica moves) that the cluster carries out: remaining
moves and bytes, estimated time, reasons for delays."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ottla.cli.cluster.moves.reassignment_requests import copied_parts_of
from ottla.client.admin import Admin
from ottla.insight.facts.cluster_load_driver import cluster_load
from ottla.insight.facts.reassignments_driver import ongoing_of
from ottla.insight.facts.stored_plan import StoredPlan
from ottla.model.balance.cluster_load import BalanceLimits, BrokerLoad, ClusterLoad
from ottla.model.balance.move_plan import BalancePlan, PlannedMove
from ottla.model.balance.plan_text import StoredMove
from ottla.model.balance.refusals import refusal_of_partition
from ottla.model.ids import TopicPartition

WAITS = "waits for its turn"


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """Progress of one replica move of the balance plan that is not complete yet."""

    move: StoredMove
    size_bytes: int
    part: float | None
    """Copied fraction of the moved replica, from 0 to 1. None if the move has not started."""
    reason: str
    """Reason why the replica move has not started yet. Empty if it has started."""

    @property
    def left_bytes(self) -> int:
        """Number of bytes of the moved replica that remain to be copied."""
        return round(self.size_bytes * (1 - (self.part or 0.0)))


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """Progress of all moves in the balance plan that are not complete."""

    rows: tuple[MoveProgress, ...]
    rate: int

    @property
    def seconds_left(self) -> float:
        """Minimum time in seconds until the last replica of the plan is copied, at the present
        throttle."""
        moves = tuple(
            PlannedMove(row.move.at, row.move.before, row.move.after, row.left_bytes)
            for row in self.rows
        )
        return BalancePlan(moves=moves, before={}, after={}).seconds(self.rate)

    @property
    def left_bytes(self) -> int:
        """Number of bytes that remain to be copied by all moves of the plan."""
        return sum(row.left_bytes * len(row.move.adding) for row in self.rows)


async def progress_of(admin: Admin, stored: StoredPlan) -> PlanProgress:
    """Return the progress of a stored balance plan. Requests the sizes of all logs from all
    brokers."""
    targets = {move.at: move for move in stored.moves}
    moving = [one for one in await ongoing_of(admin, ()) if one.at in targets]
    parts = await copied_parts_of(admin, moving)
    return PlanProgress(tuple(rows_of(stored.moves, await cluster_load(admin), parts)), stored.rate)


def rows_of(
    moves: tuple[StoredMove, ...], load: ClusterLoad, parts: Mapping[TopicPartition, float]
) -> list[MoveProgress]:
    """Return the progress of each move in a balance plan. `parts` has the copied fraction of each
    move in progress."""
    partitions = {one.at: one for one in load.partitions}
    brokers = {one.id: one for one in load.brokers}
    rows = []
    for move in moves:
        found = partitions.get(move.at)
        part = parts.get(move.at)
        reason = ""
        if found is None:
            reason = "its topic was deleted"
        elif part is None:
            # The topics of a plan have throttled replicas: those of the plan itself.
            leaving = {one for one in move.before if one not in move.after}
            reason = refusal_of_partition(
                replace(found, has_throttle=False), brokers, leaving, BalanceLimits()
            ) or next(filter(None, (_absence(brokers.get(one), one) for one in move.adding)), WAITS)
        rows.append(MoveProgress(move, 0 if found is None else found.size_bytes, part, reason))
    return rows


def _absence(broker: BrokerLoad | None, broker_id: int) -> str:
    """Return the reason why no replica can move to a broker, or an empty text if the broker accepts
    replicas."""
    if broker is None or not broker.is_active:
        return f"broker {broker_id} is down"
    return f"broker {broker_id} is cordoned" if broker.is_cordoned else ""
