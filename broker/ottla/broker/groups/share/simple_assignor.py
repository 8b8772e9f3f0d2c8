"""Simple assignor of share groups: each partition has at least one member, and each member at least
one partition. Pure.

The members of a share group may consume one partition together (KIP-932). With enough partitions,
each partition has one member, which the uniform assignor selects. If a member has no partition
after that, it shares the partition with the fewest members. Balance has priority over stickiness;
stickiness decides between equally balanced assignments (KIP-1263).
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from typing import TypeAlias
from uuid import UUID

from ottla.broker.groups.consumer.assignors import uniform
from ottla.broker.groups.consumer.assignors.subscription import AssignedSubscription, Assignment
from ottla.node.network.steps import StepPace, Steps, run_through

Partition: TypeAlias = tuple[UUID, int]

SharedPartitions: TypeAlias = Mapping[UUID, Sequence[int]]
"""Indexes of the partitions that may be assigned, in ascending order, by topic id."""


def assign(
    members: Mapping[str, AssignedSubscription], partitions: SharedPartitions
) -> dict[str, Assignment]:
    """Compute the whole assignment of a share group in one call. Returns the assignment of each
    member by member id."""
    return run_through(assign_in_steps(members, partitions))


def assign_in_steps(
    members: Mapping[str, AssignedSubscription], partitions: SharedPartitions
) -> Steps[dict[str, Assignment]]:
    """Assign each partition of a share group to at least one subscriber, in steps. Returns the
    assignments by member id."""
    places = {topic_id: _places(indexes) for topic_id, indexes in partitions.items()}
    # The uniform assignor knows the partitions 0 to n - 1 of a topic.
    numbered = {}
    pace = StepPace()
    for member_id, member in members.items():
        numbered[member_id] = member._replace(assigned=_renumbered(member.assigned, places))
        if pace.is_due(1 + len(member.assigned)):
            yield
    counts = {topic_id: len(indexes) for topic_id, indexes in partitions.items()}
    owned = yield from uniform.assign_in_steps(numbered, counts)
    yield from _share(numbered, counts, owned)
    return {
        member_id: {
            topic_id: frozenset(partitions[topic_id][place] for place in assigned)
            for topic_id, assigned in owned[member_id].items()
        }
        for member_id in owned
    }


def _places(indexes: Sequence[int]) -> dict[int, int]:
    return {index: place for place, index in enumerate(indexes)}


def _renumbered(assigned: Assignment, places: Mapping[UUID, Mapping[int, int]]) -> Assignment:
    """Return an assignment in which each partition index is replaced by its position among the
    assignable partitions."""
    found = {}
    for topic_id, indexes in assigned.items():
        of_topic = places.get(topic_id, {})
        known = frozenset(of_topic[index] for index in indexes if index in of_topic)
        if known:
            found[topic_id] = known
    return found


def _share(
    members: Mapping[str, AssignedSubscription],
    counts: Mapping[UUID, int],
    owned: dict[str, Assignment],
) -> Steps[None]:
    """Assign one partition of its subscription to each share group member without a partition.

    A member first keeps one of its former partitions. Then members move from the partitions with
    the most members to the partitions with the fewest, while a move improves the balance.
    """
    idle: dict[frozenset[UUID], list[str]] = {}
    assignable = frozenset(counts)
    for member_id in sorted(members):
        if not owned[member_id]:
            idle.setdefault(members[member_id].topic_ids & assignable, []).append(member_id)
    pace = StepPace()
    sharers: dict[Partition, int] = {}
    for topic_ids in idle:
        for topic_id in topic_ids:
            for place in range(counts[topic_id]):
                sharers[topic_id, place] = 1  # Its owner.
                if pace.is_due():
                    yield
    kept: dict[str, Partition] = {}
    for topic_ids, member_ids in idle.items():
        for member_id in member_ids:
            partition = _former(members[member_id], topic_ids, sharers)
            if partition is not None:
                kept[member_id] = partition
                sharers[partition] += 1
            if pace.is_due():
                yield
    for topic_ids, member_ids in idle.items():
        least = [
            (sharers[topic_id, place], topic_id.int, place, topic_id)
            for topic_id in sorted(topic_ids, key=lambda one: one.int)
            for place in range(counts[topic_id])
        ]
        heapify(least)
        if pace.is_due(len(least)):
            yield
        for member_id in member_ids:
            if not least:
                break
            while least[0][0] != sharers[least[0][3], least[0][2]]:
                _, number, place, topic_id = least[0]
                heapreplace(least, (sharers[topic_id, place], number, place, topic_id))
            partition = least[0][3], least[0][2]
            old = kept.get(member_id)
            if old is not None and sharers[old] - sharers[partition] < 2:
                partition = old
            else:
                sharers[partition] += 1
                if old is not None:
                    sharers[old] -= 1
                    number = old[0].int
                    least.append((sharers[old], number, old[1], old[0]))
                    heapify(least)
            owned[member_id] = {partition[0]: frozenset((partition[1],))}
            if pace.is_due():
                yield


def _former(
    member: AssignedSubscription, topic_ids: frozenset[UUID], sharers: Mapping[Partition, int]
) -> Partition | None:
    """Return the partition with the fewest members among the member's former partitions, or None if
    the member had no partition."""
    former = [
        (sharers[topic_id, place], topic_id.int, place, topic_id)
        for topic_id, places in member.assigned.items()
        if topic_id in topic_ids
        for place in places
    ]
    if not former:
        return None
    _, _, place, topic_id = min(former)
    return topic_id, place
