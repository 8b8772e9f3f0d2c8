"""The assignor that gives each member a run of neighbouring partitions of each topic.  Pure.

Topics with as many partitions and the same subscribers are split at the same places: partition 7 of
both goes to one member, which is what joins need.  Static members come first, by their
group.instance.id, so that their parts are the same ones after they were started again.

It looks at no earlier assignment: where a member comes or goes, the runs of those after it move.
"""

from collections.abc import Mapping
from uuid import UUID

from ottla.broker.groups.assignors.subscription import (
    AssignedSubscription,
    Assignment,
    PartitionCounts,
    topics_by_subscribers,
)
from ottla.broker.network.steps import StepPace, Steps, run_through


def assign(
    members: Mapping[str, AssignedSubscription], partition_counts: PartitionCounts
) -> dict[str, Assignment]:
    """Do at once what `assign_in_steps` does."""
    return run_through(assign_in_steps(members, partition_counts))


def assign_in_steps(
    members: Mapping[str, AssignedSubscription], partition_counts: PartitionCounts
) -> Steps[dict[str, Assignment]]:
    """Split each topic evenly among its subscribers; the first ones have one partition more."""
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
