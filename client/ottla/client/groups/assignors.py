"""How the members of a group share the partitions of their topics.

Pure; the member that leads the group decides for all.  Names and rules are the Java client's, so
that in a mixed group it does not matter who leads.  Invariants: EveryPartitionOnce (each partition
of a topic somebody subscribed to goes to exactly one subscriber of that topic), SameForAll (the
result depends on nothing but the arguments), NobodyLosesUnasked (cooperative-sticky gives a
partition away only when nobody claims it any more; until then nobody gets it).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.model.ids import TopicPartition


class MemberSubscription(NamedTuple):
    """What one member wants, and what it had."""

    topics: frozenset[str]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    """The generation in which it owned that."""


Assignment = dict[str, list[TopicPartition]]
Members = Mapping[str, MemberSubscription]
Assignor = Callable[[Members, Mapping[str, int]], Assignment]


def range_assignment(members: Members, partition_counts: Mapping[str, int]) -> Assignment:
    """Give each member a run of each topic's partitions; the first members get one more."""
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
    """Deal all partitions of all topics in turn, passing over who did not subscribe."""
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
    """Share as evenly as the subscriptions allow, and let members keep what they had."""
    found: Assignment = {member_id: [] for member_id in members}
    wanted = _wanted(members, partition_counts)
    owner = _kept(members, set(wanted))
    for at in wanted:
        if at in owner:
            found[owner[at]].append(at)
    for at in wanted:
        if at not in owner:
            found[_least_loaded(members, found, at.topic)].append(at)
    _even_out(members, found)
    return {member_id: sorted(partitions) for member_id, partitions in found.items()}


def cooperative_sticky_assignment(
    members: Members, partition_counts: Mapping[str, int]
) -> Assignment:
    """Share as `sticky` does, but hold back what somebody else still has (KIP-429).

    Who has it sees that it is to be given up, gives it up, and the group rebalances once more.
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
"""Those under which members keep what they have while the group rebalances, if all their
assignors are such."""


def _in_order(members: Members) -> list[str]:
    """Return members as Java's assignors order them: static ones first, by their instance ids."""

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
    """Return who had each partition last and may keep it.

    Who had it in a later generation wins; of two who claim it in one generation neither does.
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


def _even_out(members: Members, found: Assignment) -> None:
    """Move partitions from who has more to who has at least two fewer, as long as there are any."""
    has_moved = True
    while has_moved:
        has_moved = False
        for giver in sorted(found, key=lambda one: (-len(found[one]), one)):
            for at in sorted(found[giver], reverse=True):
                taker = _least_loaded(members, found, at.topic)
                # Each move makes the loads more even, so this ends.
                if len(found[taker]) + 1 < len(found[giver]):
                    found[giver].remove(at)
                    found[taker].append(at)
                    has_moved = True
