"""Range assignor: each member gets a range of consecutive partitions of each topic.  Pure.

Topics with the same number of partitions and the same subscribers are split at the same places.
Partition 7 of both goes to one member, as joins require.  Static members come first, ordered by
group.instance.id, so that their ranges are the same after a restart.  Earlier assignments are
ignored: when a member joins or leaves, the ranges of later members move.
"""

from collections.abc import Mapping
from uuid import UUID

from ottla.broker.groups.consumer.assignors.subscription import (
    AssignedSubscription,
    Assignment,
    PartitionCounts,
    topics_by_subscribers,
)
from ottla.node.network.steps import StepPace, Steps, run_through


def assign(
    members: Mapping[str, AssignedSubscription], partition_counts: PartitionCounts
) -> dict[str, Assignment]:
    """Compute the whole assignment at once, and return it by member id."""
    return run_through(assign_in_steps(members, partition_counts))


def assign_in_steps(
    members: Mapping[str, AssignedSubscription], partition_counts: PartitionCounts
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
    return {**assignments}


def _rank(member_id: str, member: AssignedSubscription) -> tuple[bool, str]:
    is_dynamic = member.instance_id is None
    return is_dynamic, member_id if member.instance_id is None else member.instance_id
