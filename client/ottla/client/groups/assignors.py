"""Assignors of the classic protocol: they distribute the partitions of topics among members.

Pure.  The leader of the group computes the assignment of all members.  Names and rules are those of
the Java client, so that any member may lead a mixed group.  Invariants:
- EveryPartitionOnce: each partition of a subscribed topic is assigned to exactly one subscriber of
  that topic.
- SameForAll: the result depends only on the arguments.
- OneOwner: cooperative-sticky assigns a partition to another member only after its owner has given
  it up. Until then the partition is unassigned.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.model.ids import TopicPartition


class MemberSubscription(NamedTuple):
    """Subscription of one member, and the partitions that it owned when it joined."""

    topics: frozenset[str]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    """Generation in which the member owned these partitions."""


Assignment = dict[str, list[TopicPartition]]
Members = Mapping[str, MemberSubscription]
Assignor = Callable[[Members, Mapping[str, int]], Assignment]


def range_assignment(members: Members, partition_counts: Mapping[str, int]) -> Assignment:
    """Return an assignment with a contiguous range of each topic's partitions for each member
    (`range`).

    If a topic's partitions cannot be divided evenly, the first members get one partition more than
    the others.
    """
    found: Assignment = {member_id: [] for member_id in members}
    for topic in sorted(partition_counts):
        subscribers = [one for one in _in_order(members) if topic in members[one].topics]
        if not subscribers:
            continue
        least, extra = divmod(partition_counts[topic], len(subscribers))
        start = 0
        for place, member_id in enumerate(subscribers):
            end = start + least + (place < extra)
            found[member_id] += [TopicPartition(topic, index) for index in range(start, end)]
            start = end
    return found


def round_robin_assignment(members: Members, partition_counts: Mapping[str, int]) -> Assignment:
    """Return an assignment of the partitions of all topics to the members in turn (`roundrobin`).

    Members that do not subscribe to the topic of a partition are skipped.
    """
    found: Assignment = {member_id: [] for member_id in members}
    ring = _in_order(members)
    turn = 0
    for at in _wanted(members, partition_counts):
        while at.topic not in members[ring[turn % len(ring)]].topics:
            turn += 1
        found[ring[turn % len(ring)]].append(at)
        turn += 1
    return found


def sticky_assignment(members: Members, partition_counts: Mapping[str, int]) -> Assignment:
    """Return an assignment that is as even as the subscriptions allow, and moves as few partitions
    as possible (`sticky`)."""
    found: Assignment = {member_id: [] for member_id in members}
    wanted = _wanted(members, partition_counts)
    owner = _kept(members, set(wanted))
    for at in wanted:
        if at in owner:
            found[owner[at]].append(at)
    for at in wanted:
        if at not in owner:
            found[_least_loaded(members, found, at.topic)].append(at)
    _balance(members, found)
    return {member_id: sorted(partitions) for member_id, partitions in found.items()}


def cooperative_sticky_assignment(
    members: Members, partition_counts: Mapping[str, int]
) -> Assignment:
    """Return the assignment of `sticky` without the partitions that another member still owns
    (KIP-429).

    A partition that moves is first left out of its owner's assignment.  The owner gives it up, and
    a second rebalance assigns it to the new owner.
    """
    found = sticky_assignment(members, partition_counts)
    claims: dict[TopicPartition, set[str]] = {}
    for member_id, member in members.items():
        for at in member.owned:
            claims.setdefault(at, set()).add(member_id)
    return {
        member_id: [at for at in partitions if claims.get(at, set()) <= {member_id}]
        for member_id, partitions in found.items()
    }


ASSIGNORS: Mapping[str, Assignor] = {
    "range": range_assignment,
    "roundrobin": round_robin_assignment,
    "sticky": sticky_assignment,
    "cooperative-sticky": cooperative_sticky_assignment,
}
COOPERATIVE = frozenset({"cooperative-sticky"})
"""Names of the cooperative assignors.  A member whose assignors are all cooperative keeps its
partitions during a rebalance."""


def _in_order(members: Members) -> list[str]:
    """Return the members in the order of Java's assignors: static members first, by their instance
    ids."""

    def place(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].group_instance_id
        return instance_id is None, instance_id or "", member_id

    return sorted(members, key=place)


def _wanted(members: Members, partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    topics = {topic for member in members.values() for topic in member.topics}
    return [
        TopicPartition(topic, index)
        for topic in sorted(topics)
        for index in range(partition_counts.get(topic, 0))
    ]


def _kept(members: Members, wanted: set[TopicPartition]) -> dict[TopicPartition, str]:
    """Return the previous owner of each partition that its owner may keep.

    If several members claim a partition, the member with the latest generation keeps it.  If two
    members claim it in the same generation, neither keeps it.
    """
    latest: dict[TopicPartition, int] = {}
    owner: dict[TopicPartition, str] = {}
    for member_id in _in_order(members):
        member = members[member_id]
        for at in dict.fromkeys(member.owned):
            if at not in wanted:
                continue
            generation_id = latest.get(at)
            if generation_id is None or generation_id < member.generation_id:
                latest[at], owner[at] = member.generation_id, member_id
            elif generation_id == member.generation_id:
                owner.pop(at, None)
    return {at: one for at, one in owner.items() if at.topic in members[one].topics}


def _least_loaded(members: Members, found: Assignment, topic: str) -> str:
    subscribers = [one for one in _in_order(members) if topic in members[one].topics]
    return min(subscribers, key=lambda one: len(found[one]))


def _balance(members: Members, found: Assignment) -> None:
    """Move partitions between members until their partition counts differ by at most one, as far as
    the subscriptions allow."""
    has_moved = True
    while has_moved:
        has_moved = False
        for giver in sorted(found, key=lambda one: (-len(found[one]), one)):
            for at in sorted(found[giver], reverse=True):
                taker = _least_loaded(members, found, at.topic)
                # Each move makes the loads more even, so the loop ends.
                if len(found[taker]) + 1 < len(found[giver]):
                    found[giver].remove(at)
                    found[taker].append(at)
                    has_moved = True
