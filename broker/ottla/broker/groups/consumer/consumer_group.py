"""One group of the consumer protocol (KIP-848): its members, epochs and partition owners. Pure.

The coordinator computes the assignment; `assigned_group.py` describes the epochs of its progress. A
partition that moves between members belongs to the old owner until the old owner has reported its
revocation. Only afterwards is it assigned to the new owner. `owner_epoch_of` shows whether another
member still owns a partition.

Invariant: OneOwner. No two members own a partition, whether it is assigned or being revoked.
"""

from collections import Counter
from enum import StrEnum
from typing import ClassVar, NamedTuple
from uuid import UUID

from ottla.broker.groups.consumer.assigned_group import AssignedGroup
from ottla.broker.groups.consumer.consumer_member import (
    JOINING_EPOCH,
    Assignment,
    ConsumerMember,
    MemberState,
)
from ottla.broker.groups.consumer.regex_readers import RegexReaders
from ottla.model.errors import ErrorCode, RefusedError
from ottla.node.network.dispatch import Permissions

NO_OWNER = -1
"""Member epoch that `owner_epoch_of` returns for a partition without an owner."""


CONSUMER = "consumer"
"""Group type and protocol type of consumer groups in ListGroups responses."""


class ConsumerGroupState(StrEnum):
    """States of a consumer group, with the names that Kafka's responses use."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """State of a group whose target assignment must be computed again."""
    RECONCILING = "Reconciling"
    """State of a group with members that have not reached their target assignment."""
    STABLE = "Stable"
    DEAD = "Dead"


class ResolvedRegex(NamedTuple):
    """Topics that currently match a regular expression of a group's subscriptions."""

    topics: frozenset[str]
    version: int
    """Metadata offset up to which changes of topics were matched with the expression."""
    timestamp_ms: int


class ConsumerGroup(AssignedGroup[ConsumerMember]):
    """Members of one consumer group, their target assignments, and the owner of each partition."""

    type: ClassVar[str] = CONSUMER

    __slots__ = (
        "_owners",
        "has_old_topics",
        "readers",
        "readers_due_ms",
        "regexes",
        "rejoining_ids",
        "static_members",
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, CONSUMER)
        self.has_old_topics = False
        """True if the log contains a record of the group's subscribed topics, which coordinators
        wrote before Kafka 4.1."""
        self.static_members: dict[str, str] = {}
        """Member id of each static member, by group.instance.id."""
        self.regexes: dict[str, ResolvedRegex] = {}
        self.readers: dict[str, RegexReaders] = {}
        """Principals that subscribe to each regular expression. They are recorded only if there is
        an authorizer, and are not stored in the log."""
        self.readers_due_ms = 0
        """Monotonic time in milliseconds of the next check for subscribers that sent no heartbeats;
        0 before the first check."""
        self.rejoining_ids: set[str] = set()
        """Ids of members that were fenced because of their epoch, and may join again under these
        ids."""
        self._owners: dict[UUID, dict[int, tuple[str, int]]] = {}
        """Owner of each partition (member id and member epoch), by topic id and partition index."""

    def note_reader(self, regex: str, permissions: Permissions | None) -> bool:
        """Record that a client subscribes to a regular expression. Returns True if this may change
        the set of topics that every subscriber of the expression may see."""
        if permissions is None or not regex:
            return False
        return self.readers.setdefault(regex, RegexReaders()).note(permissions)

    def __repr__(self) -> str:
        return f"ConsumerGroup({self.group_id!r}, {self.state}, epoch {self.group_epoch})"

    @property
    def state(self) -> ConsumerGroupState:
        """State of the consumer group, as reported in responses."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(one.is_reconciled_to(self.target_epoch) for one in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        """Name of the group's state as Kafka's responses write it."""
        return self.state.value

    def assignor_name(self, default: str) -> str:
        """Return the name of the assignor that most members of the group prefer, or `default` if no
        member has a preference."""
        votes = Counter(
            member.server_assignor
            for member in self.members.values()
            if member.server_assignor is not None
        )
        return max(sorted(votes), key=lambda name: votes[name]) if votes else default

    def owner_epoch_of(self, topic_id: UUID, index: int) -> int:
        """Return the member epoch of the group member that owns a partition, or NO_OWNER if no
        member owns it."""
        owner = self._owners.get(topic_id, {}).get(index)
        return NO_OWNER if owner is None else owner[1]

    def owner_of(self, topic_id: UUID, index: int) -> str | None:
        """Return the id of the group member that owns a partition, or None if no member owns it."""
        owner = self._owners.get(topic_id, {}).get(index)
        return None if owner is None else owner[0]

    # ---- subscriptions

    @property
    def depends_on_racks(self) -> bool:
        """True if a member of the group has reported a rack."""
        return self._racked_count > 0

    def _topics_of(self, names: frozenset[str], regex: str) -> frozenset[str]:
        resolved = self.regexes.get(regex)
        return names if resolved is None else names | resolved.topics

    # ---- changes; replayed records make the same ones

    def put(self, member: ConsumerMember) -> None:
        """Add a member to the group, or replace the member with the same id."""
        old = self.members.get(member.member_id)
        super().put(member)
        if old is not None:
            self._release(old)
            if old.instance_id is not None and old.instance_id != member.instance_id:
                self._forget_instance(old)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._take(member)

    def remove(self, member_id: str) -> ConsumerMember | None:
        """Remove a member and its target assignment from the group. Returns the member, or None if
        the group has no member with this id."""
        self.rejoining_ids.discard(member_id)
        member = super().remove(member_id)
        if member is not None:
            self._release(member)
            self._forget_instance(member)
        return member

    def put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Set the topics that match a regular expression of the group's subscriptions, or delete
        the expression if `resolved` is None."""
        self._subscribed_topics = None
        if resolved is None:
            self.regexes.pop(regex, None)
            self.readers.pop(regex, None)
        else:
            self.regexes[regex] = resolved

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
                    # In a compacted log the partition may have another owner already.
                    if index in owners and owners[index][0] == member.member_id:
                        del owners[index]
                if not owners:
                    self._owners.pop(topic_id, None)


def check_epoch(
    group: ConsumerGroup, member: ConsumerMember, epoch: int, owned: Assignment | None
) -> None:
    """Raise RefusedError if the epoch in a request is neither the group member's current epoch nor
    its previous epoch."""
    if epoch == member.member_epoch and member.state is not MemberState.UNKNOWN:
        return
    is_behind = epoch == member.previous_member_epoch and _is_within(owned, member.assigned)
    if epoch < member.member_epoch and is_behind:
        return
    if member.state is MemberState.UNKNOWN and owned is not None and not owned:
        return
    group.rejoining_ids.add(member.member_id)
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
    """Return True if a static group member may rejoin under its own member id, after a response was
    lost or the member was fenced."""
    if member is None or member.member_id != known_id or member.is_away:
        return False
    is_new = member.previous_member_epoch == JOINING_EPOCH
    return is_new or member.member_id in group.rejoining_ids


def unknown_member(group_id: str, member_id: str) -> RefusedError:
    """Return the error for a client with a member id that is not in the group."""
    return RefusedError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}."
    )
