"""Base class of a group whose partitions the coordinator assigns: a consumer or a share group.
Pure.

Epochs describe the progress of its members towards an assignment:

    group_epoch    incremented whenever the target assignment must be computed again
    target_epoch   the group epoch for which the target was computed
    member_epoch   (of each member) the target epoch that the member has reached
"""

import hashlib
from collections import Counter
from collections.abc import Collection
from typing import Generic, Protocol, TypeAlias, TypeVar

from ottla.broker.groups.consumer.consumer_member import NOTHING, Assignment
from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.metadata.image import MetadataImage, Topic
from ottla.model.compiled import mypyc_attr
from ottla.model.ids import NodeId

Subscription: TypeAlias = tuple[frozenset[str], str]
"""Subscription of a group member: topic names, and a regular expression, which is an empty text if
the member has none."""


class AssignedMember(Protocol):
    """Member of a consumer or share group, as an assignor (which assigns partitions) sees it."""

    @property
    def member_id(self) -> str:
        """Id of the group member."""
        ...

    @property
    def instance_id(self) -> str | None:
        """Value of group.instance.id of a static group member, or None for a dynamic member. A
        static member keeps this value when it restarts."""
        ...

    @property
    def rack_id(self) -> str | None:
        """Rack that the group member reported, or None."""
        ...

    @property
    def subscription(self) -> Subscription:
        """Topic names and regular expression to which the group member subscribes."""
        ...


MemberT = TypeVar("MemberT", bound=AssignedMember)


@mypyc_attr(allow_interpreted_subclasses=True)
class AssignedGroup(CoordinatedGroup, Generic[MemberT]):
    """Members of a consumer or share group, their subscriptions and their target assignments."""

    __slots__ = (
        "_racked_count",
        "_subscribed_topics",
        "_subscriptions",
        "group_epoch",
        "hashed",
        "members",
        "metadata_hash",
        "target_epoch",
        "target_ms",
        "targets",
    )

    def __init__(self, group_id: str, protocol_type: str) -> None:
        super().__init__(group_id, protocol_type)
        self.group_epoch = 0
        self.target_epoch = 0
        self.metadata_hash = 0
        """Hash of the topics to which the group subscribes; 0 if no topic is subscribed."""
        self.members: dict[str, MemberT] = {}
        self.targets: dict[str, Assignment] = {}
        self.target_ms: int | None = None
        """Monotonic time in milliseconds at which this coordinator last computed the group's target
        assignment, or None before the first computation."""
        self._racked_count = 0
        """Number of members of the group that have reported a rack."""
        self._subscribed_topics: frozenset[str] | None = None
        self._subscriptions: Counter[Subscription] = Counter()
        """Number of members for each subscription. Most members have the same subscription."""
        self.hashed: tuple[frozenset[str], MetadataImage, bool, int] | None = None
        """The last computed hash of the subscribed topics, with its inputs: the topic names, the
        metadata image, and whether racks are included. The hash is cached, so that it is computed
        once for all members. None before the first computation."""

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return not self.members

    @property
    def member_ids(self) -> Collection[str]:
        """Ids of the group's members."""
        return self.members.keys()

    def target_of(self, member_id: str) -> Assignment:
        """Return the target assignment of a group member."""
        return self.targets.get(member_id, NOTHING)

    # ---- subscriptions

    def subscribed_topics(self) -> frozenset[str]:
        """Return the names of all topics to which the group's members subscribe. The topics need
        not exist."""
        found = self._subscribed_topics
        if found is None:
            found = frozenset().union(*(self._topics_of(*one) for one in self._subscriptions))
            self._subscribed_topics = found
        return found

    def topics_of(self, member: MemberT) -> frozenset[str]:
        """Return the names of the topics to which a group member subscribes, by name or by regular
        expression."""
        names, regex = member.subscription
        return self._topics_of(names, regex)

    def _topics_of(self, names: frozenset[str], regex: str) -> frozenset[str]:
        return names

    @property
    def depends_on_racks(self) -> bool:
        """True if the group's assignor takes racks into account, and a member has reported a
        rack."""
        return False

    def hash_of_topics(self, image: MetadataImage) -> int:
        """Return a hash of the group's subscribed topics. The hash changes when a subscribed topic
        changes.

        If the group depends on racks, the hash also changes with the racks of the replicas
        (KIP-1101).
        """
        names, has_racks = self.subscribed_topics(), self.depends_on_racks
        known = self.hashed
        if (
            known is None
            or known[0] is not names
            or known[1] is not image
            or known[2] is not has_racks
        ):
            known = self.hashed = (names, image, has_racks, _hash_of(names, image, has_racks))
        return known[3]

    # ---- changes; replayed records make the same ones

    def put(self, member: MemberT) -> None:
        """Add a member to the group, or replace the member with the same id."""
        old = self.members.get(member.member_id)
        if old is None or old.subscription != member.subscription:
            self._count_subscription(member, 1)
            if old is not None:
                self._count_subscription(old, -1)
        self.members[member.member_id] = member
        self._racked_count += bool(member.rack_id) - bool(old is not None and old.rack_id)

    def remove(self, member_id: str) -> MemberT | None:
        """Remove a member and its target assignment from the group. Returns the member, or None if
        the group has no member with this id."""
        self.targets.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_subscription(member, -1)
            self._racked_count -= bool(member.rack_id)
        return member

    def _count_subscription(self, member: MemberT, change: int) -> None:
        """Add `change` (1 or -1) to the number of members with a member's subscription. The group's
        topics change with the first and the last member of a subscription."""
        subscription = member.subscription
        if self._subscriptions[subscription] in (0, -change):
            self._subscribed_topics = None
        self._subscriptions[subscription] += change
        if not self._subscriptions[subscription]:
            del self._subscriptions[subscription]


def _hash_of(names: frozenset[str], image: MetadataImage, has_racks: bool) -> int:
    known: dict[tuple[NodeId, ...], str] = {}
    topics = [
        f"{topic.name} {topic.id} {len(topic.partitions)}"
        + (f" {_racks_of(topic, image, known)}" if has_racks else "")
        for name in sorted(names)
        if (topic := image.topic(name)) is not None
    ]
    if not topics:
        return 0
    digest = hashlib.blake2b("\n".join(topics).encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def _racks_of(topic: Topic, image: MetadataImage, known: dict[tuple[NodeId, ...], str]) -> str:
    """Return a text that lists the racks of the replicas of each partition in a topic. `known`
    caches the texts by replicas, since many partitions have the same replicas."""
    racks = []
    for index in range(len(topic.partitions)):
        replicas = topic.partitions[index].replicas
        text = known.get(replicas)
        if text is None:
            brokers = filter(None, map(image.brokers.get, replicas))
            # A rack may contain any character.
            text = known[replicas] = repr(sorted({one.rack for one in brokers if one.rack}))
        racks.append(text)
    return " ".join(racks)
