"""One group of the consumer protocol (KIP-848): its members, its epochs, and who has what.  Pure.

The coordinator computes the assignment.  Three numbers say how far it is:

    group_epoch    rises whenever the target assignment has to be computed again
    target_epoch   the group epoch for which it was computed
    member_epoch   (of each member) the target epoch that it has come to

A partition that leaves one member and comes to another is with the first until that one has said
that it gave it up, and the second gets it after that.  `owner_epoch_of` is how the others know.

Invariant: OneOwner.  No partition is in the hands of two members; assigned or being given up.
"""

from collections import Counter
from enum import StrEnum
from typing import ClassVar, NamedTuple, TypeAlias
from uuid import UUID

from ottla.broker.groups.consumer_member import (
    JOINING_EPOCH,
    NOTHING,
    Assignment,
    ConsumerMember,
    MemberState,
)
from ottla.broker.groups.regex_readers import RegexReaders
from ottla.broker.network.dispatch import Permissions
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError

NO_OWNER = -1
"""The epoch of the owner of a partition that nobody has."""


CONSUMER = "consumer"
"""The type of such a group, and its protocol, as ListGroups calls them."""


class ConsumerGroupState(StrEnum):
    """The states, by the names that clients are told."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target is to be computed again."""
    RECONCILING = "Reconciling"
    """Some members are not where the target wants them."""
    STABLE = "Stable"
    DEAD = "Dead"


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression means at the moment."""

    topics: frozenset[str]
    version: int
    """The offset in the metadata log up to which topics were looked at."""
    timestamp_ms: int


Subscription: TypeAlias = tuple[frozenset[str], str]
"""The topics' names that a member subscribes, and its regular expression."""


class ConsumerGroup:
    """The members of one group; owns them, the target of each, and who has which partition."""

    type: ClassVar[str] = CONSUMER
    protocol_type: ClassVar[str] = CONSUMER

    __slots__ = (
        "_owners",
        "_subscribed_topics",
        "_subscriptions",
        "group_epoch",
        "group_id",
        "has_old_topics",
        "hashed",
        "members",
        "metadata_hash",
        "readers",
        "readers_due_ms",
        "regexes",
        "static_members",
        "target_epoch",
        "target_ms",
        "targets",
        "told_to_rejoin",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.target_epoch = 0
        self.metadata_hash = 0
        """Of the topics it subscribes; 0 with none."""
        self.has_old_topics = False
        """Its log has its topics themselves, from a coordinator before Kafka 4.1."""
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """The member id of each group.instance.id."""
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.readers: dict[str, RegexReaders] = {}
        """Who subscribes by each of them, where an authorizer is set; not in the log."""
        self.readers_due_ms = 0
        """Time of the next search for silent readers, in ms; 0 before the first one."""
        self.target_ms: int | None = None
        """Time at which the target was computed, on the monotonic clock of this coordinator."""
        self.told_to_rejoin: set[str] = set()
        """Members that were fenced by their epoch: they may join again under their id."""
        self._subscribed_topics: frozenset[str] | None = None
        self._subscriptions: Counter[Subscription] = Counter()
        """How many members have each: mostly there is one, however many members."""
        self.hashed: tuple[frozenset[str], MetadataImage, int] | None = None
        """The hash of some topics as of an image, which is not computed for each member again."""
        self._owners: dict[UUID, dict[int, tuple[str, int]]] = {}
        """Of each partition: who has it, and in which epoch of that member."""

    def note_reader(self, regex: str, permissions: Permissions | None) -> bool:
        """Note who subscribes by a regex; return whether it may mean other topics by that."""
        if permissions is None or not regex:
            return False
        return self.readers.setdefault(regex, RegexReaders()).note(permissions)

    def __repr__(self) -> str:
        return f"ConsumerGroup({self.group_id!r}, {self.state}, epoch {self.group_epoch})"

    @property
    def state(self) -> ConsumerGroupState:
        """How far the group is."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(one.is_reconciled_to(self.target_epoch) for one in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        return not self.members

    def assignor_name(self, default: str) -> str:
        """Return the assignor that most members would like; the default when none says."""
        votes = Counter(
            member.server_assignor
            for member in self.members.values()
            if member.server_assignor is not None
        )
        return max(sorted(votes), key=lambda name: votes[name]) if votes else default

    def target_of(self, member_id: str) -> Assignment:
        """Return what a member is to work on in the target epoch."""
        return self.targets.get(member_id, NOTHING)

    def owner_epoch_of(self, topic_id: UUID, index: int) -> int:
        """Return the epoch of the member that has a partition, or NO_OWNER."""
        owner = self._owners.get(topic_id, {}).get(index)
        return NO_OWNER if owner is None else owner[1]

    def owner_of(self, topic_id: UUID, index: int) -> str | None:
        """Return who has a partition."""
        owner = self._owners.get(topic_id, {}).get(index)
        return None if owner is None else owner[0]

    # ---- subscriptions

    def subscribed_topics(self) -> frozenset[str]:
        """The names of all topics that its members subscribe, whether these exist or not."""
        found = self._subscribed_topics
        if found is None:
            found = frozenset().union(*(self._topics_of(*one) for one in self._subscriptions))
            self._subscribed_topics = found
        return found

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics that a member subscribes."""
        return self._topics_of(member.subscribed_names, member.subscribed_regex)

    def _topics_of(self, names: frozenset[str], regex: str) -> frozenset[str]:
        resolved = self.regexes.get(regex)
        return names if resolved is None else names | resolved.topics

    # ---- changes; records that are replayed make the same ones

    def put(self, member: ConsumerMember) -> None:
        """Take in a member, or what it is now."""
        old = self.members.get(member.member_id)
        if old is None or _subscription(old) != _subscription(member):
            self._count_subscription(member, 1)
            if old is not None:
                self._count_subscription(old, -1)
        if old is not None:
            self._release(old)
            if old.instance_id is not None and old.instance_id != member.instance_id:
                self._forget_instance(old)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._take(member)

    def remove(self, member_id: str) -> ConsumerMember | None:
        """Let a member go, with its target."""
        self.targets.pop(member_id, None)
        self.told_to_rejoin.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_subscription(member, -1)
            self._release(member)
            self._forget_instance(member)
        return member

    def put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Take in which topics a regular expression means; None forgets it."""
        self._subscribed_topics = None
        if resolved is None:
            self.regexes.pop(regex, None)
            self.readers.pop(regex, None)
        else:
            self.regexes[regex] = resolved

    def _count_subscription(self, member: ConsumerMember, change: int) -> None:
        """Count a member's subscription in or out; the last one of its kind changes the topics."""
        subscription = _subscription(member)
        if self._subscriptions[subscription] in (0, -change):
            self._subscribed_topics = None
        self._subscriptions[subscription] += change
        if not self._subscriptions[subscription]:
            del self._subscriptions[subscription]

    def _forget_instance(self, member: ConsumerMember) -> None:
        instance_id = member.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    def _take(self, member: ConsumerMember) -> None:
        owner = (member.member_id, member.member_epoch)
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, indexes in assignment.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(indexes, owner))

    def _release(self, member: ConsumerMember) -> None:
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, indexes in assignment.items():
                owners = self._owners.get(topic_id, {})
                for index in indexes:
                    # Replayed from a compacted log, it may have passed on already.
                    if index in owners and owners[index][0] == member.member_id:
                        del owners[index]
                if not owners:
                    self._owners.pop(topic_id, None)


def _subscription(member: ConsumerMember) -> Subscription:
    return member.subscribed_names, member.subscribed_regex


def check_epoch(
    group: ConsumerGroup, member: ConsumerMember, epoch: int, owned: Assignment | None
) -> None:
    """Refuse an epoch that is not the member's, or the one before whose end it was not told."""
    if epoch == member.member_epoch and member.state is not MemberState.UNKNOWN:
        return
    is_behind = epoch == member.previous_member_epoch and _is_within(owned, member.assigned)
    if epoch < member.member_epoch and is_behind:
        return
    if member.state is MemberState.UNKNOWN and owned is not None and not owned:
        return
    group.told_to_rejoin.add(member.member_id)
    size = "greater" if epoch > member.member_epoch else "smaller"
    raise RefusedError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.member_epoch}). The member must abandon all its partitions "
        "and rejoin.",
    )


def _is_within(owned: Assignment | None, assigned: Assignment) -> bool:
    return owned is not None and all(
        topic_id in assigned and indexes <= assigned[topic_id]
        for topic_id, indexes in owned.items()
    )


def may_join_again(group: ConsumerGroup, member: ConsumerMember | None, known_id: str) -> bool:
    """Return True if a static member rejoins under its own id: it lost an answer, or was fenced."""
    if member is None or member.member_id != known_id or member.is_away:
        return False
    is_new = member.previous_member_epoch == JOINING_EPOCH
    return is_new or member.member_id in group.told_to_rejoin
