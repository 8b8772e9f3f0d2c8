"""What must move before a broker can be removed, and what makes that impossible.  Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ottla.cli.cluster.reassignment_plan import Move, ReplicaAssignment, moves_of, without
from ottla.cli.cluster.reassignment_requests import Ongoing
from ottla.cli.common import counted
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """The reassignments that still have to begin, and those under way."""

    moves: Sequence[Move]
    under_way: Collection[TopicPartition]

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions that still have a replica on the broker."""
        return {move.at for move in self.moves} | set(self.under_way)


def plan_removal(
    broker: int,
    places: Sequence[ReplicaAssignment],
    ongoing: Sequence[Ongoing],
    racks_of_alive: Mapping[int, str | None],
    *,
    is_alive: bool,
) -> RemovalPlan:
    """Return what must move away from a broker.

    A reassignment under way that already removes the broker is awaited and not begun again.
    Raises RefusedError if a partition cannot keep its count of replicas, or if the broker is down
    and has the only copy of a partition.
    """
    targets = {one.at: one.target for one in ongoing}
    wanted = [
        ReplicaAssignment(
            one.topic,
            one.partition,
            targets.get(TopicPartition(one.topic, one.partition), one.replicas),
        )
        for one in places
    ]
    held = [one for one in wanted if broker in one.replicas]
    others = {one: rack for one, rack in racks_of_alive.items() if one != broker}
    for one in held:
        if len(one.replicas) > len(others):
            raise RefusedError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"broker {broker} cannot be removed: partition {one.name} has "
                f"{counted(len(one.replicas), 'replica')}, and only {len(others)} other "
                "brokers are alive; start or add a broker first",
            )
        if not is_alive and one.replicas == (broker,):
            raise RefusedError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"broker {broker} cannot be removed: it has the only copy of partition "
                f"{one.name} and is down; start it again, then remove it",
            )
    leaving = {one.at for one in ongoing if broker in one.replicas and broker not in one.target}
    if not held:
        return RemovalPlan([], leaving)
    return RemovalPlan(moves_of(wanted, without(wanted, broker, others)), leaving)
