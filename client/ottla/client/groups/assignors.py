"""Assignors of the classic protocol: they distribute the partitions of topics among members.

Pure. The leader of the group computes the assignment of all members. Names and rules are those of
the Java client. A group may therefore contain members of both clients, and any of them may be the
leader. Invariants:
- EveryPartitionOnce: each partition of a subscribed topic is assigned to exactly one subscriber of
  that topic.
- SameForAll: the result depends only on the arguments.
- OneOwner: cooperative-sticky assigns a partition to another member only after its owner has given
  it up. Until then the partition is unassigned.
- BalanceFirst: racks (KIP-881) never change how many partitions a member gets, only which
  partitions.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ottla.model.ids import TopicPartition


class MemberSubscription(NamedTuple):
    """Subscription of one group member, and the partitions that it owned when it joined."""

    topics: frozenset[str]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    """Group generation in which the member owned its partitions."""
    rack: str | None = None
    """Rack of the member (`client.rack`), or None if it is not configured."""


Assignment = dict[str, list[TopicPartition]]
Members = Mapping[str, MemberSubscription]
PartitionRacks = Mapping[TopicPartition, frozenset[str]]
"""Racks of the replicas, by partition. Partitions whose racks are unknown are not included."""

NO_RACKS: PartitionRacks = {}

EXCHANGE_CANDIDATES_MAX = 100
"""Maximum number of partitions that are examined for one exchange between members. With a smaller
number, more partitions are assigned to members in other racks. With a larger number, a rebalance
takes longer, because its time grows with the square of the partition count."""


class Assignor(Protocol):
    """Function that assigns partitions to members."""

    def __call__(
        self,
        members: Members,
        partition_counts: Mapping[str, int],
        racks: PartitionRacks = NO_RACKS,
    ) -> Assignment:
        """Return the assignment of the partitions of all subscribed topics."""
        ...


def range_assignment(
    members: Members, partition_counts: Mapping[str, int], racks: PartitionRacks = NO_RACKS
) -> Assignment:
    """Return an assignment in which each member gets a contiguous range of each topic's partitions
    (`range`).

    If a topic's partitions cannot be divided evenly, the first members get one partition more than
    the other members. If members and partitions have racks, each member first gets partitions with
    a replica in its rack, and the ranges are not contiguous.
    """
    found: Assignment = {member_id: [] for member_id in members}
    for topic in sorted(partition_counts):
        subscribers = [one for one in _in_order(members) if topic in members[one].topics]
        if not subscribers:
            continue
        least, extra = divmod(partition_counts[topic], len(subscribers))
        partitions = [TopicPartition(topic, index) for index in range(partition_counts[topic])]
        if _do_racks_matter(members, subscribers, partitions, racks):
            room = {one: least + (at < extra) for at, one in enumerate(subscribers)}
            _fill_by_rack(members, partitions, racks, room, found)
            continue
        start = 0
        for place, member_id in enumerate(subscribers):
            end = start + least + (place < extra)
            found[member_id] += [TopicPartition(topic, index) for index in range(start, end)]
            start = end
    return found


def round_robin_assignment(
    members: Members, partition_counts: Mapping[str, int], racks: PartitionRacks = NO_RACKS
) -> Assignment:
    """Return an assignment that gives the partitions of all topics to the members in turn
    (`roundrobin`).

    Members that do not subscribe to a partition's topic are skipped. Racks are ignored, as in the
    Java client.
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


def sticky_assignment(
    members: Members, partition_counts: Mapping[str, int], racks: PartitionRacks = NO_RACKS
) -> Assignment:
    """Return an assignment that is as even as the subscriptions allow, and moves as few partitions
    as possible (`sticky`).

    Members exchange newly assigned partitions with each other if more partitions then have a
    replica in the rack of their member.
    """
    found: Assignment = {member_id: [] for member_id in members}
    wanted = _wanted(members, partition_counts)
    owner = _kept(members, set(wanted))
    for at in wanted:
        if at in owner:
            found[owner[at]].append(at)
    for at in wanted:
        if at not in owner:
            found[_least_loaded(members, found, at, racks)].append(at)
    _balance(members, found)
    if racks:
        _exchange(members, found, [at for at in wanted if at not in owner], racks)
    return {member_id: sorted(partitions) for member_id, partitions in found.items()}


def cooperative_sticky_assignment(
    members: Members, partition_counts: Mapping[str, int], racks: PartitionRacks = NO_RACKS
) -> Assignment:
    """Return the assignment of `sticky` without the partitions that another member still owns
    (KIP-429).

    If a partition moves, the first rebalance only removes it from its owner's assignment. After the
    owner has given it up, a second rebalance assigns it to the new owner.
    """
    found = sticky_assignment(members, partition_counts, racks)
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
"""Names of the cooperative assignors. A member that offers only cooperative assignors keeps its
partitions during a rebalance."""


def _in_order(members: Members) -> list[str]:
    """Return the member ids in the order that Java's assignors use: static members first, sorted by
    instance id."""

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
    """Return the owner of each partition that stays with its previous owner.

    If several members claim a partition, the member with the latest generation keeps it. If two
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


def _do_racks_matter(
    members: Members,
    subscribers: list[str],
    partitions: list[TopicPartition],
    racks: PartitionRacks,
) -> bool:
    """Return True if racks can make a difference: a subscriber has a rack in which some partition
    has no replica.

    Otherwise all choices are equally near, and partitions are assigned without racks, as in Java.
    """
    wanted = {rack for one in subscribers if (rack := members[one].rack) is not None}
    found = [racks.get(at, frozenset()) for at in partitions]
    return bool(wanted) and any(found) and not all(wanted <= each for each in found)


def _fill_by_rack(
    members: Members,
    partitions: list[TopicPartition],
    racks: PartitionRacks,
    room: dict[str, int],
    found: Assignment,
) -> None:
    """Assign the partitions of one topic to members. Each member accepts at most the number of
    partitions in `room`. Partitions with a replica in the member's rack are assigned first."""
    left = dict.fromkeys(partitions)
    for is_near in (True, False):
        for member_id, count in room.items():
            rack = members[member_id].rack
            near = [at for at in left if not is_near or rack in racks.get(at, frozenset())][:count]
            for at in near:
                del left[at]
            room[member_id] -= len(near)
            found[member_id] += near
    for member_id in room:
        found[member_id].sort()


def _exchange(
    members: Members, found: Assignment, movable: list[TopicPartition], racks: PartitionRacks
) -> None:
    """Swap pairs of movable partitions between members in different racks. After a swap, each
    partition must have a replica in the rack of its new member. Both members must subscribe to both
    topics."""
    holder = {at: one for one, partitions in found.items() for at in partitions}
    far: dict[str, list[TopicPartition]] = {}
    for at in movable:
        rack = members[holder[at]].rack
        near = racks.get(at, frozenset())
        if rack is None or not near or rack in near:
            continue
        for other_rack in sorted(near):
            others = far.get(other_rack, [])
            match = next(
                (
                    other
                    for other in others[:EXCHANGE_CANDIDATES_MAX]
                    if rack in racks[other]
                    and at.topic in members[holder[other]].topics
                    and other.topic in members[holder[at]].topics
                ),
                None,
            )
            if match is None:
                continue
            others.remove(match)
            for one, gone, new in ((holder[at], at, match), (holder[match], match, at)):
                found[one].remove(gone)
                found[one].append(new)
            break
        else:
            far.setdefault(rack, []).append(at)


def _least_loaded(
    members: Members, found: Assignment, at: TopicPartition, racks: PartitionRacks = NO_RACKS
) -> str:
    """Return the subscriber with the fewest partitions. If several subscribers have equally few, a
    subscriber in a rack of the partition is preferred."""
    near = racks.get(at, frozenset())
    subscribers = [one for one in _in_order(members) if at.topic in members[one].topics]
    return min(subscribers, key=lambda one: (len(found[one]), members[one].rack not in near))


def _balance(members: Members, found: Assignment) -> None:
    """Move partitions between members until their partition counts differ by at most one, as far as
    the subscriptions allow."""
    has_moved = True
    while has_moved:
        has_moved = False
        for giver in sorted(found, key=lambda one: (-len(found[one]), one)):
            for at in sorted(found[giver], reverse=True):
                taker = _least_loaded(members, found, at)
                # Each move makes the loads more even, so the loop ends.
                if len(found[taker]) + 1 < len(found[giver]):
                    found[giver].remove(at)
                    found[taker].append(at)
                    has_moved = True
