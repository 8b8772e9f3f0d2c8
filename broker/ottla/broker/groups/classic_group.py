"""One group of the classic protocol: who is in it, in which generation, and what all support.

Pure.  Its clients choose the assignment (their leader computes it); the coordinator sees to it
that all members of a generation agree on one protocol and get their part of one assignment.

    EMPTY ──join──► PREPARING_REBALANCE ──all joined, or time is up──► COMPLETING_REBALANCE
      ▲                 ▲        │                                            │
      │                 │        └──nobody joined──► EMPTY                    │ leader's sync
      │                 ├──join, leave, session over──────────────────────────┤
      │                 └──join, leave, session over── STABLE ◄───────────────┘
      └── (deleted: DEAD)

`rebalance.py` moves it along these arrows; here is what it has to keep right on the way.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import ClassVar

from ottla.broker.groups.classic_member import ClassicMember, Protocol
from ottla.broker.groups.effects import MemberClient
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.wire.codec import decode_prefix
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from ottla.wire.messages.join_group_response import JoinGroupResponseMember

CONSUMER_PROTOCOL = "consumer"
"""The protocol type of consumers; other users of groups (Connect) have their own."""

CLASSIC = "classic"
"""The type of such a group, as ListGroups calls it (KIP-848)."""


VERSION_BYTES = 2
"""The version in front of what a consumer says of itself, an int16."""


class GroupState(StrEnum):
    """The states, by the names that clients are told."""

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


class ClassicGroup:
    """The members of one group and their generation; `become` is its only way between states."""

    type: ClassVar[str] = CLASSIC

    __slots__ = (
        "generation_id",
        "group_id",
        "has_new_member",
        "leader_id",
        "members",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.state_timestamp_ms = -1
        """When it came into its state, by the wall clock; -1 when that is not known."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """The member id of each group.instance.id (KIP-345)."""
        self.pending_joins: set[str] = set()
        """Ids that were given out and have not come back yet (KIP-394)."""
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not asked for their assignment yet."""
        self.has_new_member = False
        """Somebody came during the initial delay: it may be extended."""

    def __repr__(self) -> str:
        return f"ClassicGroup({self.group_id!r}, {self.state}, generation {self.generation_id})"

    # ---- states

    def become(self, state: GroupState, wall_ms: int) -> None:
        """Go into another state."""
        assert state in MAY_BECOME[self.state], f"{self} cannot become {state}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = wall_ms

    def is_in(self, *states: GroupState) -> bool:
        """Return whether it is in one of these states."""
        return self.state in states

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        return self.state is GroupState.EMPTY

    @property
    def may_rebalance(self) -> bool:
        """Whether a rebalance can begin now."""
        return GroupState.PREPARING_REBALANCE in MAY_BECOME[self.state]

    def begin_generation(self, wall_ms: int) -> None:
        """Everybody who stays has joined: choose their protocol."""
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
        """Return a member; refuse one that is not in the group or was replaced."""
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
        """Take a member in; the first one leads and says what kind of group it is."""
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
        """Let a member go, or an id that was given out; the lead passes to the next."""
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            del self.static_members[member.instance_id]
        if member_id == self.leader_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        return member

    def replace_static(self, instance_id: str, new_id: str) -> ClassicMember:
        """Give a static member a new id: it was started again; return it."""
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
        """Return whether this member computes the assignment."""
        return self.leader_id == member_id

    @property
    def joining(self) -> Iterator[ClassicMember]:
        """The members whose JoinGroup waits for the others."""
        return (member for member in self.members.values() if member.join_asker is not None)

    @property
    def joining_count(self) -> int:
        """How many have joined the coming generation."""
        return sum(1 for _ in self.joining)

    @property
    def have_all_joined(self) -> bool:
        """Whether nobody is waited for any more."""
        return not self.pending_joins and self.joining_count == len(self.members)

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader has joined; return whether there is one who has."""
        leader = None if self.leader_id is None else self.members.get(self.leader_id)
        if leader is not None and leader.join_asker is None:
            leader = next(self.joining, None)
            if leader is not None:
                self.leader_id = leader.member_id
        return leader is not None

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to join again."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # ---- protocols

    def supports(self, protocol_type: str, protocols: Sequence[Protocol]) -> bool:
        """Return whether somebody with these protocols fits to those who are in the group."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        common = self.common_protocols()
        return protocol_type == self.protocol_type and any(name in common for name, _ in protocols)

    def common_protocols(self) -> set[str]:
        """Return the names of the protocols that all members support."""
        members = iter(self.members.values())
        common = {name for name, _ in next(members).protocols}
        for member in members:
            common.intersection_update(name for name, _ in member.protocols)
        return common

    def chosen_protocol(self) -> str:
        """Return the protocol that most members like best of those that all support."""
        common = self.common_protocols()
        assert common, f"{self} has no protocol in common"
        votes = Counter(
            next(name for name, _ in member.protocols if name in common)
            for member in self.members.values()
        )
        return max(votes, key=lambda name: votes[name])

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics its consumers have subscribed; None when nobody can tell.

        That is known of consumers in a generation, from what they told each other.
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

    def joined_members(self) -> list[JoinGroupResponseMember]:
        """Return what the leader is told of everybody."""
        assert self.protocol_name is not None
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata_for(self.protocol_name),
            )
            for member in self.members.values()
        ]

    # ---- its record

    def as_value(self) -> GroupMetadataValue:
        """Return what is kept of it: the generation and its assignment."""
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
    """Return the group as its record has it: stable with its members, or empty."""
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
    """Return the topics of a consumer's subscription; None if it has a format of its own.

    The fields of version 0 stand in front in every version, and only they are read, as in Kafka:
    some clients write a later version and end after them.
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
