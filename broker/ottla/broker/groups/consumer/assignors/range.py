"""Range assignor: each member gets a range of consecutive partitions of each topic. Pure.

Topics with the same number of partitions and the same subscribers are split at the same places.
Partition 7 of each of these topics is therefore assigned to the same member, as stream joins
require. Static members are first in the order, sorted by group.instance.id, so that their ranges
are the same after a restart. Earlier assignments are ignored: when a member joins or leaves, the
ranges of later members move.

If members have racks, they swap partitions so that more partitions have a replica in the rack of
their member (near.py). Ranges are then not consecutive, but topics are still split in the same way.
"""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from ottla.broker.groups.consumer.assignors.near import exchange
from ottla.broker.groups.consumer.assignors.subscription import (
    NO_RACKS,
    AssignedSubscription,
    Assignment,
    PartitionCounts,
    PartitionRacks,
    topics_by_subscribers,
)
from ottla.node.network.steps import StepPace, Steps, run_through


def assign(
    members: Mapping[str, AssignedSubscription],
    partition_counts: PartitionCounts,
    racks: PartitionRacks = NO_RACKS,
) -> dict[str, Assignment]:
    """Compute the whole range assignment of a group in one call. Returns the assignment of each
    member by member id."""
    return run_through(assign_in_steps(members, partition_counts, racks))


def assign_in_steps(
    members: Mapping[str, AssignedSubscription],
    partition_counts: PartitionCounts,
    racks: PartitionRacks = NO_RACKS,
) -> Steps[dict[str, Assignment]]:
    """Assign the partitions of each topic evenly to its subscribers, in steps. Returns the
    assignments by member id. If the partitions do not divide evenly, the first subscribers get one
    partition more."""
    order = sorted(members, key=lambda member_id: _rank(member_id, members[member_id]))
    assignments: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    pace = StepPace()
    topics = yield from topics_by_subscribers(order, members)
    for subscribers, topic_ids in topics.items():
        for topic_id in topic_ids:
            count = partition_counts.get(topic_id, 0)
            share, extra_count = divmod(count, len(subscribers))
            start = 0
            for at, member_id in enumerate(subscribers[:count]):
                end = start + share + (at < extra_count)
                assignments[member_id][topic_id] = frozenset(range(start, end))
                start = end
            assert start == count
            if pace.is_due(len(subscribers) + count // 8):
                yield
        if racks:
            yield from _bring_nearer(
                subscribers, topic_ids, partition_counts, members, racks, assignments, pace
            )
    return {**assignments}


def _bring_nearer(
    subscribers: Sequence[str],
    topic_ids: Iterable[UUID],
    partition_counts: PartitionCounts,
    members: Mapping[str, AssignedSubscription],
    racks: PartitionRacks,
    assignments: dict[str, dict[UUID, frozenset[int]]],
    pace: StepPace,
) -> Steps[None]:
    """Swap partitions of topics with the same subscribers between members, so that more partitions
    are near: they have a replica in the rack of the member that consumes them.

    A member gets the same partition indexes in all topics with the same number of partitions.
    Therefore an index counts as near only if its partition is near in each of these topics.
    """
    alike: dict[int, list[UUID]] = {}
    for topic_id in topic_ids:
        if count := partition_counts.get(topic_id, 0):
            alike.setdefault(count, []).append(topic_id)
    for count, same in alike.items():
        owners: dict[int, str] = {}
        for member_id in subscribers[:count]:
            share = assignments[member_id][same[0]]
            owners.update(dict.fromkeys(sorted(share), member_id))
            if pace.is_due(len(share)):
                yield
        near = {}
        for index in range(count):
            near[index] = frozenset.intersection(*(racks[each][index] for each in same))
            if pace.is_due(len(same)):
                yield
        # An exchange for only one of two partitions could make the other farther in some topics.
        new = list(owners) if len(same) == 1 else []
        yield from exchange(owners, new, near, members, pace)
        shares: dict[str, list[int]] = {}
        for index, member_id in owners.items():
            shares.setdefault(member_id, []).append(index)
            if pace.is_due():
                yield
        for member_id, indexes in shares.items():
            share = frozenset(indexes)
            for each in same:
                assignments[member_id][each] = share
            if pace.is_due(len(same)):
                yield


def _rank(member_id: str, member: AssignedSubscription) -> tuple[bool, str]:
    is_dynamic = member.instance_id is None
    return is_dynamic, member_id if member.instance_id is None else member.instance_id
