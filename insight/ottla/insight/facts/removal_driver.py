"""Finds the state of a broker's removal: the replica moves that empty the broker, and the reasons
that prevent them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ottla.client.admin import Admin
from ottla.insight.facts.cluster_load_driver import cluster_load
from ottla.insight.facts.reassignments_driver import in_sync_of, ongoing_of
from ottla.insight.facts.replica_assignments import (
    OngoingMove,
    ReplicaAssignment,
    assignments_in,
)
from ottla.insight.facts.survey_driver import not_registered, registered
from ottla.model.amounts import counted
from ottla.model.balance.cluster_load import BalanceLimits, ClusterLoad
from ottla.model.balance.move_plan import BalancePlan
from ottla.model.balance.planner import plan_moves
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerRemoval:
    """Replica moves that remove all replicas from a broker: moves that must still be started, and
    moves in progress."""

    load: ClusterLoad
    plan: BalancePlan
    under_way: frozenset[TopicPartition]

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions whose move away from the broker is in progress or still has to be
        started."""
        return {move.at for move in self.plan.moves} | self.under_way


async def removal_of(admin: Admin, broker_id: int, throttle: int) -> BrokerRemoval:
    """Return the remaining replica moves until the broker is empty. Raises RefusedError if the
    broker cannot be emptied."""
    known = await registered(admin)
    if all(one.id != broker_id for one in known):
        raise not_registered(broker_id)
    ongoing = await ongoing_of(admin, ())
    alive = [one.id for one in known if not one.is_fenced]
    places = assignments_in(await admin.cluster.metadata())
    is_alive = broker_id in alive
    topics = {one.topic for one in places if broker_id in one.replicas}
    in_sync = await in_sync_of(admin, topics) if topics and not is_alive else {}
    leaderless = {at for at, found in in_sync.items() if found is None}
    under_way = leaving_moves(
        broker_id, places, ongoing, alive, is_alive=is_alive, leaderless=leaderless
    )
    load = await cluster_load(admin, [broker_id])
    plan = plan_moves(load, BalanceLimits(throttle_bytes_per_s=throttle))
    reasons = [one for one in plan.unmoved if one.subject not in map(str, under_way)]
    if reasons and not plan.moves and not under_way:
        subject, reason = reasons[0]
        raise RefusedError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"broker {broker_id} cannot be emptied: {f'{subject}: ' if subject else ''}{reason}",
        )
    return BrokerRemoval(load, plan, frozenset(under_way))


def leaving_moves(
    broker: int,
    places: Sequence[ReplicaAssignment],
    ongoing: Sequence[OngoingMove],
    alive: Collection[int],
    *,
    is_alive: bool,
    leaderless: Collection[TopicPartition] = (),
) -> set[TopicPartition]:
    """Return the partitions that a reassignment in progress moves away from the broker. The caller
    waits for these instead of starting another move.

    Raises RefusedError if a partition cannot keep its number of replicas. Also raises RefusedError
    if the broker is down and has the only copy of a partition, or a replica of a partition that has
    no leader.
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
    others = {one for one in alive if one != broker}
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
    for place in places:
        at = TopicPartition(place.topic, place.partition)
        if not is_alive and broker in place.replicas and at in leaderless:
            raise RefusedError(
                ErrorCode.LEADER_NOT_AVAILABLE,
                f"broker {broker} cannot be removed: it is down, and partition {place.name} (on "
                f"{', '.join(map(str, place.replicas))}) has no leader to copy from; start it "
                "again, then remove it",
            )
    return {one.at for one in ongoing if broker in one.replicas and broker not in one.target}
