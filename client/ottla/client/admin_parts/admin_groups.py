"""Admin calls for consumer groups: members and their removal, committed offsets, deletion."""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from ottla.client.admin_parts.admin_calls import AdminCalls, by_topic
from ottla.client.groups.coordinator import Coordinator, open_coordinator
from ottla.client.groups.group_member import assignment_of
from ottla.client.groups.group_offsets import Committed, fetch_offsets, try_commit
from ottla.client.network.answer_checks import known, only
from ottla.client.network.cluster import raise_for
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError, code_of
from ottla.model.ids import NodeId, Offset, TopicPartition
from ottla.wire.codec_types import Message
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_describe_response import (
    Assignment,
    ConsumerGroupDescribeResponse,
)
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.delete_groups_response import DeleteGroupsResponse
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_groups_response import (
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.list_groups_response import ListGroupsResponse
from ottla.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_delete_response import OffsetDeleteResponse

R = TypeVar("R", bound=Message)

STATES_FROM, TYPES_FROM = 4, 5
"""First version of ListGroups that can filter groups by state, and first version that can filter
them by type."""
NOT_OF_THE_NEW_PROTOCOL = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
DEAD = "Dead"
CLASSIC_MEMBER = 0
"""Number in a ConsumerGroupDescribe response that marks a member of the classic protocol."""

REMOVAL_REASON = "member was removed by an admin"
"""Start of the reason in the LeaveGroup request with which an admin client removes a member, as in
Kafka's admin client."""
REASON_CHARS_MAX = 255
"""Maximum length of the reason in a LeaveGroup request, in characters (KIP-800). Longer reasons are
truncated."""


class GroupType(Enum):
    """Rebalance protocol of a group or of a member."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    """The consumer protocol (KIP-848), in which the coordinator computes the assignment."""
    SHARE = "share"
    """A share group (KIP-932), whose members consume partitions together."""
    STREAMS = "streams"
    """A group of Kafka Streams (KIP-1071). Its coordinator assigns the tasks to the members."""
    UNKNOWN = ""
    """The broker is too old to report the type of the group, or this client does not know the
    reported type."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group, as listed by its coordinator."""

    group_id: str
    """Id of the group."""
    protocol_type: str
    """Protocol type of the group: "consumer", "connect" or another. Empty if the group has only
    committed offsets."""
    state: str
    """Kafka's name of the state, such as Empty, Stable or PreparingRebalance. An empty text if the
    broker is too old to report the state."""
    type: GroupType
    """Rebalance protocol of the group: classic, consumer (KIP-848), share (KIP-932) or streams
    (KIP-1071)."""
    coordinator: NodeId
    """Id of the broker that coordinates the group."""


@dataclass(frozen=True, slots=True)
class GroupMemberDescription:
    """One member of a group, with its client and its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    target: frozenset[TopicPartition] | None = None
    """Target assignment of the member (KIP-848). None in a group of the classic protocol."""
    member_epoch: int | None = None
    type: GroupType = GroupType.CLASSIC
    """Rebalance protocol of the member. A group of the consumer protocol may have members that use
    the classic protocol."""
    rack: str | None = None
    topics: tuple[str, ...] | None = None
    """Topics that the member subscribes to by name.  None if the coordinator does not know them."""
    regex: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """State of a group and its members, as reported by the group's coordinator."""

    group_id: str
    """Id of the group."""
    type: GroupType
    """Rebalance protocol of the group: classic, consumer (KIP-848), share (KIP-932) or streams
    (KIP-1071)."""
    state: str
    """Kafka's name of the state, as the coordinator reports it."""
    assignor: str
    """Name of the assignor that computes the group's assignment."""
    members: tuple[GroupMemberDescription, ...]
    """Members of the group, each with its assignment."""
    group_epoch: int | None = None
    """Group epoch (KIP-848). The coordinator increases it whenever a new target assignment has to
    be computed."""
    assignment_epoch: int | None = None
    """Group epoch for which the target assignment was computed (KIP-848)."""
    protocol_type: str = "consumer"
    """Protocol type of the group, such as "consumer" or "connect". Empty if the group has only
    committed offsets."""


@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """Member that an admin client removes from a group. It is identified by its member id, or by
    its group.instance.id if it is a static member."""

    member_id: str = ""
    """Member id. Empty for a static member, whose member id changes when it restarts."""
    instance_id: str | None = None
    """The member's group.instance.id, or None if the member is identified by its member id."""


class GroupCalls(AdminCalls):
    """Methods of the admin client for groups and their committed offsets."""

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[GroupType] = ()
    ) -> list[GroupListing]:
        """Return the groups of all coordinators, sorted. If `states` or `types` is not empty, only
        groups with one of these states or types are returned."""
        found: dict[str, GroupListing] = {}
        brokers = (await self._cluster.metadata([])).brokers
        for node in sorted(NodeId(broker.node_id) for broker in brokers):

            async def attempt(node: NodeId = node) -> list[GroupListing]:
                return await self.list_groups_of(
                    node, states=states, types=[one.value for one in types]
                )

            for listing in await self._retry_until_timeout(attempt):
                found[listing.group_id] = listing
        return [found[group_id] for group_id in sorted(found)]

    async def list_groups_of(
        self, node: NodeId, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """Return the groups whose coordinator is the broker `node`, by a single request without
        retries."""
        request = ListGroupsRequest()
        version = await self._cluster.version_of(request.API_KEY, node)
        if version >= STATES_FROM:
            request.states_filter = list(states)
        if version >= TYPES_FROM:
            request.types_filter = list(types)
        answer = await self._cluster.request(request, ListGroupsResponse, node=node)
        raise_for(answer.error_code)
        return [
            GroupListing(
                row.group_id,
                row.protocol_type,
                row.group_state,
                known(GroupType, row.group_type.lower(), GroupType.UNKNOWN),
                node,
            )
            for row in answer.groups
        ]

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Return the state and the members of a group.

        Raises RefusedError(GROUP_ID_NOT_FOUND) if the group does not exist.
        """
        async with self._coordinator(group_id) as coordinator:

            async def attempt() -> GroupDescription:
                try:
                    return await self._describe_consumer_group(coordinator)
                except RefusedError as error:
                    if error.code not in NOT_OF_THE_NEW_PROTOCOL:
                        raise
                return await self._describe_classic_group(coordinator)

            return await coordinator.until_it_answers(attempt, self._timeout_s)

    async def group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        """Return the committed offsets of a group in `partitions`, or in all partitions if
        `partitions` is None."""
        async with self._coordinator(group_id) as coordinator:
            return await coordinator.until_it_answers(
                lambda: fetch_offsets(coordinator, partitions), self._timeout_s
            )

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Set committed offsets of a group that has no members.

        If the coordinator refuses partitions, the RefusedError of the first one is raised.
        """
        for refusal in (await self.try_alter_group_offsets(group_id, offsets)).values():
            raise refusal

    async def try_alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, RefusedError]:
        """Set committed offsets of a group that has no members.

        Returns the RefusedError of each partition that the coordinator refused. Partitions whose
        offset was set are not in the result.
        """
        commits = {at: Committed(Offset(offset)) for at, offset in offsets.items()}
        async with self._coordinator(group_id) as coordinator:

            async def attempt() -> dict[TopicPartition, RefusedError]:
                refused = await try_commit(coordinator, commits)
                for refusal in refused.values():
                    if refusal.is_retriable:
                        raise refusal
                return refused

            return await coordinator.until_it_answers(attempt, self._timeout_s)

    async def remove_group_members(
        self,
        group_id: str,
        members: Collection[MemberToRemove] | None = None,
        *,
        reason: str = "",
    ) -> dict[MemberToRemove, ErrorCode]:
        """Remove members from a classic or consumer group, or all members if `members` is None.

        The partitions of removed members are assigned to the other members. A removed client that
        still runs joins the group again as a new member: at its next poll with the classic
        protocol, or at its next heartbeat with the consumer protocol. It can no longer commit the
        offsets of its former partitions. Coordinators of Apache Kafka write `reason` to their log.

        Returns the error code of each member: NONE, or UNKNOWN_MEMBER_ID if the group does not have
        the member or is a share or streams group. Raises RefusedError if the coordinator refuses
        the whole request, and RefusedError(GROUP_ID_NOT_FOUND) if `members` is None and the group
        does not exist.
        """
        if members is None:
            described = (await self.describe_group(group_id)).members
            members = [
                MemberToRemove(one.member_id)
                if one.instance_id is None
                else MemberToRemove(instance_id=one.instance_id)
                for one in described
            ]
        if not members:
            return {}
        text = f"{REMOVAL_REASON}: {reason}" if reason else REMOVAL_REASON
        request = LeaveGroupRequest(
            group_id=group_id,
            members=[
                MemberIdentity(
                    member_id=one.member_id,
                    group_instance_id=one.instance_id,
                    reason=text[:REASON_CHARS_MAX],
                )
                for one in members
            ],
        )
        async with self._coordinator(group_id) as coordinator:

            async def attempt() -> dict[MemberToRemove, ErrorCode]:
                answer = await self._ask(coordinator, request, LeaveGroupResponse)
                raise_for(answer.error_code)
                return _codes_of_removed(members, answer)

            return await coordinator.until_it_answers(attempt, self._timeout_s)

    async def delete_group(self, group_id: str) -> None:
        """Delete a group that has no members, and its committed offsets."""
        async with self._coordinator(group_id) as coordinator:

            async def attempt() -> None:
                answer = await coordinator.request(
                    DeleteGroupsRequest(groups_names=[group_id]),
                    DeleteGroupsResponse,
                    timeout_s=self._timeout_s,
                )
                raise_for(only(answer.results, "group").error_code)

            await coordinator.until_it_answers(attempt, self._timeout_s)

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Delete a group's committed offsets in these partitions.

        Returns the error code of each partition: NONE, or GROUP_SUBSCRIBED_TO_TOPIC if a member of
        the group is subscribed to the partition's topic.
        """
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in indexes],
                )
                for topic, indexes in by_topic(partitions).items()
            ],
        )
        async with self._coordinator(group_id) as coordinator:

            async def attempt() -> dict[TopicPartition, ErrorCode]:
                answer = await self._ask(coordinator, request, OffsetDeleteResponse)
                raise_for(answer.error_code)
                return {
                    TopicPartition(topic.name, one.partition_index): code_of(one.error_code)
                    for topic in answer.topics
                    for one in topic.partitions
                }

            return await coordinator.until_it_answers(attempt, self._timeout_s)

    @asynccontextmanager
    async def _coordinator(self, group_id: str) -> AsyncIterator[Coordinator]:
        async with open_coordinator(
            self._cluster, group_id, client_id=self._client_id
        ) as coordinator:
            yield coordinator

    async def _ask(self, coordinator: Coordinator, request: Message, response: type[R]) -> R:
        return await coordinator.request(request, response, timeout_s=self._timeout_s)

    async def _describe_consumer_group(self, coordinator: Coordinator) -> GroupDescription:
        request = ConsumerGroupDescribeRequest(group_ids=[coordinator.key])
        answer = await self._ask(coordinator, request, ConsumerGroupDescribeResponse)
        row = only(answer.groups, "group")
        raise_for(row.error_code, row.error_message)
        return GroupDescription(
            group_id=row.group_id,
            type=GroupType.CONSUMER,
            state=row.group_state,
            assignor=row.assignor_name,
            members=tuple(
                GroupMemberDescription(
                    member_id=one.member_id,
                    instance_id=one.instance_id,
                    client_id=one.client_id,
                    host=one.client_host,
                    assignment=_partitions(one.assignment),
                    target=_partitions(one.target_assignment),
                    member_epoch=one.member_epoch,
                    type=GroupType.CLASSIC
                    if one.member_type == CLASSIC_MEMBER
                    else GroupType.CONSUMER,
                    rack=one.rack_id,
                    topics=tuple(one.subscribed_topic_names),
                    regex=one.subscribed_topic_regex or None,
                )
                for one in row.members
            ),
            group_epoch=row.group_epoch,
            assignment_epoch=row.assignment_epoch,
        )

    async def _describe_classic_group(self, coordinator: Coordinator) -> GroupDescription:
        request = DescribeGroupsRequest(groups=[coordinator.key])
        answer = await self._ask(coordinator, request, DescribeGroupsResponse)
        row = only(answer.groups, "group")
        raise_for(row.error_code, row.error_message)
        if row.group_state == DEAD:
            # Older versions of DescribeGroups report an unknown group as Dead.
            raise RefusedError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {coordinator.key!r}"
            )
        return GroupDescription(
            group_id=row.group_id,
            type=GroupType.CLASSIC,
            state=row.group_state,
            assignor=row.protocol_data,
            members=tuple(map(_classic_member, row.members)),
            protocol_type=row.protocol_type,
        )


def _codes_of_removed(
    members: Collection[MemberToRemove], answer: LeaveGroupResponse
) -> dict[MemberToRemove, ErrorCode]:
    """Return the error code of each member in a LeaveGroup response. Raises ProtocolError if a
    member is missing in the response."""
    codes = {
        MemberToRemove(one.member_id, one.group_instance_id): code_of(one.error_code)
        for one in answer.members
    }
    for one in members:
        if one not in codes:
            raise ProtocolError(f"the response to LeaveGroup does not contain {one}")
    return {one: codes[one] for one in members}


def _classic_member(row: DescribedGroupMember) -> GroupMemberDescription:
    try:
        assignment = frozenset(assignment_of(row.member_assignment))
    except ProtocolError:
        assignment = frozenset()  # not a consumer: its assignment has another format
    return GroupMemberDescription(
        member_id=row.member_id,
        instance_id=row.group_instance_id,
        client_id=row.client_id,
        host=row.client_host,
        assignment=assignment,
    )


def _partitions(assignment: Assignment) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )
