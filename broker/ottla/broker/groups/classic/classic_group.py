"""One group of the classic protocol: its members, generation and common protocols.

Pure. The coordinator does not compute the assignment: the member that leads the group does. The
coordinator ensures that all members of a generation use one protocol and get their partitions from
one assignment.

    EMPTY ──join──► PREPARING_REBALANCE ──all joined, or timeout────► COMPLETING_REBALANCE
      ▲                 ▲        │                                            │
      │                 │        └──none joined────► EMPTY                    │ leader's sync
      │                 ├──join, leave, session timeout───────────────────────┤
      │                 └──join, leave, session timeout─ STABLE ◄─────────────┘
      └── (deleted: DEAD)

`rebalance.py` performs these transitions. This module checks that each is legal.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import ClassVar

from ottla.broker.coordinators.effects import MemberClient
from ottla.broker.groups.classic.classic_member import ClassicMember, Protocol
from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.wire.codec import decode_prefix
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from ottla.wire.messages.join_group_response import JoinGroupResponseMember

CONSUMER_PROTOCOL = "consumer"
"""Protocol type of groups of consumers. Groups of other applications, such as Kafka Connect, have
other protocol types."""

CLASSIC = "classic"
"""Group type of classic groups in ListGroups responses (KIP-848)."""


VERSION_BYTES = 2
"""Size in bytes of the version (int16) at the start of the subscription in a member's metadata."""


class GroupState(StrEnum):
    """States of a classic group, with the names that Kafka's responses use."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


MAY_BECOME = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE, GroupState.DEAD},
    GroupState.PREPARING_REBALANCE: {
        GroupState.EMPTY,
        GroupState.COMPLETING_REBALANCE,
        GroupState.DEAD,
    },
    GroupState.COMPLETING_REBALANCE: {
        GroupState.PREPARING_REBALANCE,
        GroupState.STABLE,
        GroupState.DEAD,
    },
    GroupState.STABLE: {GroupState.PREPARING_REBALANCE, GroupState.DEAD},
    GroupState.DEAD: set(),
}


class ClassicGroup(CoordinatedGroup):
    """Members of one classic group and their generation. Only the method `become` changes its
    state."""

    type: ClassVar[str] = CLASSIC

    __slots__ = (
        "generation_id",
        "has_new_member",
        "leader_id",
        "members",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "state",
        "state_timestamp_ms",
        "static_members",
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, None)
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.state_timestamp_ms = -1
        """Wall time in milliseconds at which the classic group entered its state; -1 if unknown."""
        self.generation_id = 0
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member id of each static member, by group.instance.id (KIP-345)."""
        self.pending_joins: set[str] = set()
        """Member ids that the coordinator has assigned, but whose clients have not joined the group
        yet (KIP-394)."""
        self.pending_syncs: set[str] = set()
        """Ids of the group members of this generation that have not sent SyncGroup yet."""
        self.has_new_member = False
        """True if a member joined during the initial delay of the first rebalance, so that the
        delay may be extended."""

    def __repr__(self) -> str:
        return f"ClassicGroup({self.group_id!r}, {self.state}, generation {self.generation_id})"

    # ---- states

    def become(self, state: GroupState, wall_ms: int) -> None:
        """Change the state of the classic group. Asserts that the transition is legal."""
        assert state in MAY_BECOME[self.state], f"{self} cannot become {state}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = wall_ms

    def is_in(self, *states: GroupState) -> bool:
        """Return True if the classic group is in one of `states`."""
        return self.state in states

    @property
    def state_name(self) -> str:
        """Name of the group's state as Kafka's responses write it."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """True if the group has no members."""
        return self.state is GroupState.EMPTY

    @property
    def is_unused(self) -> bool:
        """True if the group may be deleted as soon as it has no committed offsets. Such a group has
        no members and no assigned member id whose client may still join."""
        return self.state is GroupState.EMPTY and not self.pending_joins

    @property
    def emptied_ms(self) -> int:
        """Wall time in milliseconds at which the last member left the group, or -1 if unknown. The
        retention of the group's offsets counts from this time."""
        has_had_members = self.is_empty and self.protocol_type is not None
        return self.state_timestamp_ms if has_had_members else -1

    @property
    def member_ids(self) -> Collection[str]:
        """Ids of the group's members."""
        return self.members.keys()

    @property
    def may_rebalance(self) -> bool:
        """True if the group's state allows a rebalance to begin now."""
        return GroupState.PREPARING_REBALANCE in MAY_BECOME[self.state]

    def begin_generation(self, wall_ms: int) -> None:
        """Begin a generation with the members that have joined: increment the generation's number,
        and choose its protocol."""
        self.generation_id += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.chosen_protocol()
            self.become(GroupState.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol_name = None
            self.become(GroupState.EMPTY, wall_ms)

    # ---- members

    def find(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return a member of the group. Raises RefusedError if the member id is unknown or was
        replaced by another static member."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise RefusedError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def add(self, member: ClassicMember) -> None:
        """Add a member to the group. The first member becomes the leader and sets the group's
        protocol type."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member, or an assigned member id whose client has not joined. Returns the
        removed member, or None. If the leader is removed, the next member becomes the leader."""
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            del self.static_members[member.instance_id]
        if member_id == self.leader_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        return member

    def replace_static(self, instance_id: str, new_id: str) -> ClassicMember:
        """Assign a new member id to a restarted static member. Returns the member."""
        old_id = self.static_members[instance_id]
        member = self.members.pop(old_id)
        member.member_id = new_id
        self.members[new_id] = member
        self.static_members[instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.discard(old_id)
            self.pending_syncs.add(new_id)
        return member

    def is_leader(self, member_id: str) -> bool:
        """Return True if this member is the group's leader. The leader computes the assignment."""
        return self.leader_id == member_id

    @property
    def joining(self) -> Iterator[ClassicMember]:
        """Members whose JoinGroup request is waiting for the other members."""
        return (member for member in self.members.values() if member.join_responder is not None)

    @property
    def joining_count(self) -> int:
        """Number of members that have joined the group's next generation."""
        return sum(1 for _ in self.joining)

    @property
    def have_all_joined(self) -> bool:
        """True if all members have joined the group's next generation."""
        return not self.pending_joins and self.joining_count == len(self.members)

    def elect_joined_leader(self) -> bool:
        """Choose the group's leader among the members that have joined. Returns False if no member
        has joined."""
        leader = None if self.leader_id is None else self.members.get(self.leader_id)
        if leader is not None and leader.join_responder is None:
            leader = next(self.joining, None)
            if leader is not None:
                self.leader_id = leader.member_id
        return leader is not None

    @property
    def rebalance_timeout_ms(self) -> int:
        """Longest rebalance timeout of the group's members, in milliseconds."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # ---- protocols

    def supports(self, protocol_type: str, protocols: Sequence[Protocol]) -> bool:
        """Return True if a member with these protocols has a protocol in common with the group."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        common = self.common_protocols()
        return protocol_type == self.protocol_type and any(name in common for name, _ in protocols)

    def common_protocols(self) -> set[str]:
        """Return the names of the assignment protocols that all members support."""
        members = iter(self.members.values())
        common = {name for name, _ in next(members).protocols}
        for member in members:
            common.intersection_update(name for name, _ in member.protocols)
        return common

    def chosen_protocol(self) -> str:
        """Return the name of the assignment protocol that most members prefer. Only protocols that
        all members support are considered."""
        common = self.common_protocols()
        assert common, f"{self} has no protocol in common"
        votes = Counter(
            next(name for name, _ in member.protocols if name in common)
            for member in self.members.values()
        )
        return max(votes, key=lambda name: votes[name])

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the names of the topics to which the group's members subscribe, or None if they
        are unknown.

        The topics are known if the members are consumers and the group has a generation, because
        the coordinator then reads the subscriptions in the members' metadata.
        """
        if self.protocol_type != CONSUMER_PROTOCOL or self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            found = _topics_of(member.metadata_for(self.protocol_name))
            if found is None:
                return None
            topics.update(found)
        return frozenset(topics)

    def used_topics(self) -> frozenset[str] | None:
        """Return the names of the topics whose committed offsets do not expire. Returns None while
        members rebalance: the offsets of all topics are then kept."""
        if self.is_empty:
            return frozenset()
        return self.subscribed_topics() if self.state is GroupState.STABLE else None

    def joined_members(self) -> list[JoinGroupResponseMember]:
        """Return the group's members as the leader's JoinGroup response lists them."""
        assert self.protocol_name is not None
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata_for(self.protocol_name),
            )
            for member in self.members.values()
        ]

    # ---- record

    def as_value(self) -> GroupMetadataValue:
        """Return the record value that stores the group's generation and assignment in
        `__consumer_offsets`."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client.id,
                    client_host=member.client.host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata_for(self.protocol_name or ""),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )


def group_of(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the classic group that a record value describes. Its state is Stable if it has
    members, otherwise Empty."""
    group = ClassicGroup(group_id)
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.state_timestamp_ms = value.current_state_timestamp
    for found in value.members:
        group.add(
            ClassicMember(
                found.member_id,
                found.group_instance_id,
                MemberClient(found.client_id, found.client_host),
                session_timeout_ms=found.session_timeout,
                rebalance_timeout_ms=(
                    found.session_timeout
                    if found.rebalance_timeout < 0
                    else found.rebalance_timeout
                ),
                protocol_type=value.protocol_type,
                protocols=((value.protocol or "", found.subscription),),
                assignment=found.assignment,
            )
        )
    if value.members:
        group.state = GroupState.STABLE
        if value.leader in group.members:
            group.leader_id = value.leader
    return group


def _topics_of(metadata: bytes) -> Iterable[str] | None:
    """Return the topics in a consumer's subscription, or None if the format of the subscription is
    unknown.

    Every version begins with the fields of version 0. Only these fields are read, as in Kafka,
    because some clients write a later version without its new fields.
    """
    if len(metadata) < VERSION_BYTES:
        return None
    try:
        found, _ = decode_prefix(
            ConsumerProtocolSubscription, 0, memoryview(metadata), VERSION_BYTES
        )
    except ProtocolError:
        return None
    return found.topics
