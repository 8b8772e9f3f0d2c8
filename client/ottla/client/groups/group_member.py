"""State machine of one group member by the classic protocol.

Pure. A member sends JoinGroup and receives the generation; the group leader also receives the
subscriptions of all members. The member then sends SyncGroup and receives its partitions. It sends
heartbeats until it has to join again. Invariants:
- OneGeneration: an assignment belongs to its generation. A member that loses the generation loses
  its partitions.
- ClaimsItsOwn: a cooperative member claims, in its subscription, the partitions that it reads.
  Other members claim none.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.groups.assignors import (
    ASSIGNORS,
    COOPERATIVE,
    NO_RACKS,
    MemberSubscription,
    PartitionRacks,
)
from ottla.client.groups.sticky_user_data import (
    NO_GENERATION,
    cooperative_user_data,
    read_cooperative_user_data,
    read_sticky_user_data,
    sticky_user_data,
)
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError, code_of
from ottla.model.ids import TopicPartition
from ottla.wire import codec
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol_assignment import TopicPartition as AssignedPartitions
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.consumer_protocol_subscription import TopicPartition as OwnedPartitions
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from ottla.model.settings.client import ConsumerConfig

PROTOCOL_TYPE = "consumer"
SUBSCRIPTION_VERSION = 2
"""Version of encoded subscriptions. They contain the owned partitions from version 1 on, and the
generation of these partitions from version 2 on."""
RACK_SUBSCRIPTION_VERSION = 3
"""Version of encoded subscriptions that contains the member's rack (KIP-881)."""
ASSIGNMENT_VERSION = 0
VERSION_BYTES = 2
STICKY = "sticky"
COOPERATIVE_STICKY = "cooperative-sticky"


class Membership(NamedTuple):
    """Ids under which offsets are committed. The default values mean a commit without group
    membership."""

    generation_id: int = NO_GENERATION
    """Generation of the group or, with the consumer protocol, the member epoch (KIP-848)."""
    member_id: str = ""
    """Member id in the group. Empty for a commit without group membership."""
    group_instance_id: str | None = None
    """Instance id of a static member.  None for a dynamic member."""
    group_id: str = ""
    """Group id if `Consumer.group_metadata` returned this object, otherwise empty."""


NO_MEMBER = Membership()


class Step(Enum):
    """Next step of a group member after a response of the coordinator."""

    GO_ON = auto()
    JOIN_AGAIN = auto()
    FIND_COORDINATOR = auto()
    WAIT = auto()


AFTER = {
    ErrorCode.NONE: Step.GO_ON,
    ErrorCode.REBALANCE_IN_PROGRESS: Step.JOIN_AGAIN,
    ErrorCode.ILLEGAL_GENERATION: Step.JOIN_AGAIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Step.JOIN_AGAIN,
    ErrorCode.MEMBER_ID_REQUIRED: Step.JOIN_AGAIN,
    ErrorCode.NOT_COORDINATOR: Step.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Step.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Step.WAIT,
    ErrorCode.REQUEST_TIMED_OUT: Step.FIND_COORDINATOR,
}
"""Next step of a group member for each error code in a response. Other codes end the membership
with an error."""


class GroupMember:
    """One group member of the classic protocol: its id, generation and assignment."""

    def __init__(self, group_id: str, config: "ConsumerConfig") -> None:
        self.group_id = group_id
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.assignment: tuple[TopicPartition, ...] = ()
        self._config = config
        self._protocol_name = ""
        self._members: dict[str, MemberSubscription] = {}
        self._owned: tuple[TopicPartition, ...] = ()
        self._owned_generation_id = NO_GENERATION
        self.is_leader = False
        self.is_cooperative = set(config.partition_assignment_strategy) <= COOPERATIVE
        """True if the member keeps its partitions during a rebalance: all its assignors are
        cooperative."""

    @property
    def membership(self) -> Membership:
        """Ids under which the member commits offsets."""
        return Membership(self.generation_id, self.member_id, self._config.group_instance_id)

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """Topics to which any member of the group subscribes. Only the group leader knows them."""
        return frozenset(topic for member in self._members.values() for topic in member.topics)

    def join_request(self, topics: Iterable[str]) -> JoinGroupRequest:
        """Return the JoinGroup request for the next generation."""
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._config.session_timeout_ms,
            rebalance_timeout_ms=self._config.poll_interval_ms_max,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=self._subscription(name, topics))
                for name in self._config.partition_assignment_strategy
            ],
        )

    def _subscription(self, protocol_name: str, topics: Iterable[str]) -> bytes:
        user_data: bytes | None = None
        if protocol_name == STICKY:
            user_data = sticky_user_data(self._owned, self._owned_generation_id)
        elif protocol_name == COOPERATIVE_STICKY:
            user_data = cooperative_user_data(self._owned_generation_id)
        claimed = self._owned if self.is_cooperative else ()
        return _with_version(
            ConsumerProtocolSubscription(
                topics=sorted(topics),
                user_data=user_data,
                owned_partitions=[
                    OwnedPartitions(topic=topic, partitions=indexes)
                    for topic, indexes in _by_topic(claimed).items()
                ],
                generation_id=self._owned_generation_id,
                rack_id=self._config.client_rack or None,
            ),
            RACK_SUBSCRIPTION_VERSION if self._config.client_rack else SUBSCRIPTION_VERSION,
        )

    def on_joined(self, answer: JoinGroupResponse) -> Step:
        """Process the response to JoinGroup, and return the member's next step."""
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return Step.JOIN_AGAIN
        step = self._after(answer.error_code)
        if step is Step.GO_ON:
            self.member_id = answer.member_id
            self.generation_id = answer.generation_id
            self._protocol_name = answer.protocol_name or ""
            if self._protocol_name not in self._config.partition_assignment_strategy:
                raise ProtocolError(f"the group agreed on {answer.protocol_name!r}, not offered")
            self.is_leader = answer.leader == answer.member_id
            self._members = {
                member.member_id: _subscription_of(
                    self._protocol_name, member.metadata, member.group_instance_id
                )
                for member in answer.members
            }
        return step

    def sync_request(
        self, partition_counts: Mapping[str, int], racks: PartitionRacks = NO_RACKS
    ) -> SyncGroupRequest:
        """Return the SyncGroup request. If the member is the leader, the request contains the
        assignments of all members."""
        assignments: list[SyncGroupRequestAssignment] = []
        if self.is_leader:
            shared = ASSIGNORS[self._protocol_name](self._members, partition_counts, racks)
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=member_id,
                    assignment=_with_version(
                        ConsumerProtocolAssignment(
                            assigned_partitions=[
                                AssignedPartitions(topic=topic, partitions=indexes)
                                for topic, indexes in _by_topic(partitions).items()
                            ]
                        ),
                        ASSIGNMENT_VERSION,
                    ),
                )
                for member_id, partitions in shared.items()
            ]
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol_name,
            assignments=assignments,
        )

    def on_synced(self, answer: SyncGroupResponse) -> Step:
        """Process the response to SyncGroup, which contains the partitions of this member. Returns
        the member's next step."""
        step = self._after(answer.error_code)
        if step is Step.GO_ON:
            self.assignment = assignment_of(answer.assignment)
            self._owned, self._owned_generation_id = self.assignment, self.generation_id
        return step

    def heartbeat_request(self) -> HeartbeatRequest:
        """Return the Heartbeat request for the current generation."""
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id,
        )

    def on_code(self, code: int) -> Step:
        """Process the error code in the response to a heartbeat or a commit, and return the
        member's next step."""
        return self._after(code)

    def leave_request(self, reason: str) -> LeaveGroupRequest:
        """Return the LeaveGroup request of this member."""
        return LeaveGroupRequest(
            group_id=self.group_id,
            members=[MemberIdentity(member_id=self.member_id, reason=reason)],
        )

    def forget(self, *, is_expelled: bool) -> None:
        """Discard the generation and the assignment.

        If `is_expelled`, also discard the member id, so that the next join gets a new id.
        """
        self.generation_id = NO_GENERATION
        self.assignment = ()
        self.is_leader = False
        if is_expelled:
            self.member_id = ""
        if is_expelled or self.is_cooperative:
            self._owned, self._owned_generation_id = (), NO_GENERATION

    def _after(self, code: int) -> Step:
        step = AFTER.get(code_of(code))
        if step is None:
            raise RefusedError(code_of(code))
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.forget(is_expelled=True)
        elif code == ErrorCode.ILLEGAL_GENERATION:
            self.forget(is_expelled=False)
        return step


def _with_version(
    message: "ConsumerProtocolSubscription | ConsumerProtocolAssignment", version: int
) -> bytes:
    return version.to_bytes(VERSION_BYTES, "big") + codec.encode(message, version)


def _version_of(data: bytes | memoryview, highest: int) -> int:
    if len(data) < VERSION_BYTES:
        raise ProtocolError("a group member's metadata has no version")
    # A newer version only adds fields after the known ones, so it can be read as the highest known
    # version.
    return min(int.from_bytes(data[:VERSION_BYTES], "big"), highest)


def _subscription_of(
    protocol_name: str, data: bytes | memoryview, instance_id: str | None
) -> MemberSubscription:
    version = _version_of(data, ConsumerProtocolSubscription.VERSIONS[-1])
    found, _ = codec.decode_prefix(
        ConsumerProtocolSubscription, version, memoryview(data), VERSION_BYTES
    )
    owned = tuple(
        TopicPartition(one.topic, index)
        for one in found.owned_partitions
        for index in one.partitions
    )
    generation_id = found.generation_id
    if protocol_name == STICKY:
        owned, generation_id = read_sticky_user_data(found.user_data) or (owned, generation_id)
    elif generation_id == NO_GENERATION and protocol_name == COOPERATIVE_STICKY:
        generation_id = read_cooperative_user_data(found.user_data)
    return MemberSubscription(
        frozenset(found.topics), instance_id, owned, generation_id, found.rack_id
    )


def assignment_of(data: bytes | memoryview) -> tuple[TopicPartition, ...]:
    """Decode the assignment of a member and return its partitions. Raises ProtocolError if the
    bytes are malformed."""
    if not data:
        return ()
    version = _version_of(data, ConsumerProtocolAssignment.VERSIONS[-1])
    found, _ = codec.decode_prefix(
        ConsumerProtocolAssignment, version, memoryview(data), VERSION_BYTES
    )
    return tuple(
        TopicPartition(one.topic, index)
        for one in found.assigned_partitions
        for index in one.partitions
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found
