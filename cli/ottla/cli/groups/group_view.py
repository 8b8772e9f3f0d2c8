"""A group as the verbs of `ottla group` show it, whichever protocol its members speak."""

from typing import NamedTuple

from ottla.cli.groups.group_requests import ask_coordinator
from ottla.client.cluster import Cluster, raise_for
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.wire.codec import decode_prefix
from ottla.wire.messages import consumer_group_describe_response as consumer_wire
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_groups_response import (
    DescribedGroup,
    DescribeGroupsResponse,
)

CLASSIC, CONSUMER = "classic", "consumer"
NO_CONSUMER_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
"""What a coordinator says that has such a group of another protocol, or knows no such protocol."""

CLASSIC_MEMBER = 0


class MemberView(NamedTuple):
    """One member; what only the consumer protocol knows is None in a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    protocol: str
    """The one it speaks: a consumer group may have classic members while it is moved over."""
    partitions: list[TopicPartition]
    target: list[TopicPartition] | None = None
    """What it is to come to."""
    epoch: int | None = None
    rack: str | None = None
    topics: list[str] | None = None
    regex: str | None = None

    @property
    def subscription(self) -> list[str] | None:
        """The topics it names and its regular expression; None when it has none of both."""
        return [*(self.topics or ()), *filter(None, [self.regex])] or None


class GroupView(NamedTuple):
    """One group; it shares topics out by an assignor, of its members' or of the coordinator's."""

    group_id: str
    type: str
    state: str
    assignor: str | None
    members: list[MemberView]
    group_epoch: int | None = None
    target_epoch: int | None = None

    def owners(self) -> dict[TopicPartition, str]:
        """Return which member works on which partition."""
        return {at: member.member_id for member in self.members for at in member.partitions}


async def described(cluster: Cluster, group: str) -> GroupView:
    """Return a group with its members; refuse one that does not exist."""
    try:
        answer = await ask_coordinator(
            cluster,
            group,
            ConsumerGroupDescribeRequest(group_ids=[group]),
            ConsumerGroupDescribeResponse,
            lambda answer: answer.groups[0].error_code,
        )
        (found,) = answer.groups
        raise_for(found.error_code, f"group {group!r}: {found.error_message}")
    except RefusedError as refusal:
        if refusal.code in NO_CONSUMER_GROUP:
            return await _described_classic(cluster, group)
        raise
    return _consumer_view(found)


async def _described_classic(cluster: Cluster, group: str) -> GroupView:
    answer = await ask_coordinator(
        cluster,
        group,
        DescribeGroupsRequest(groups=[group]),
        DescribeGroupsResponse,
        lambda answer: answer.groups[0].error_code,
    )
    (found,) = answer.groups
    raise_for(found.error_code, f"there is no group {group!r}")
    return _classic_view(found)


def _classic_view(group: DescribedGroup) -> GroupView:
    return GroupView(
        group.group_id,
        CLASSIC,
        group.group_state,
        group.protocol_data or None,
        [
            MemberView(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host.removeprefix("/"),
                CLASSIC,
                partitions_of(member.member_assignment),
            )
            for member in group.members
        ],
    )


def _consumer_view(group: consumer_wire.DescribedGroup) -> GroupView:
    return GroupView(
        group.group_id,
        CONSUMER,
        group.group_state,
        group.assignor_name or None,
        [
            MemberView(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host.removeprefix("/"),
                CLASSIC if member.member_type == CLASSIC_MEMBER else CONSUMER,
                _partitions_in(member.assignment),
                _partitions_in(member.target_assignment),
                member.member_epoch,
                member.rack_id,
                member.subscribed_topic_names,
                member.subscribed_topic_regex or None,
            )
            for member in group.members
        ],
        group.group_epoch,
        group.assignment_epoch,
    )


def _partitions_in(assignment: consumer_wire.Assignment) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic.topic_name, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


def partitions_of(assignment: bytes) -> list[TopicPartition]:
    """Return what a classic consumer was assigned; nothing where that is in a form of its own."""
    if len(assignment) <= 2:
        return []
    version = min(int.from_bytes(assignment[:2]), ConsumerProtocolAssignment.VERSIONS[-1])
    found, _ = decode_prefix(ConsumerProtocolAssignment, version, memoryview(assignment), 2)
    return sorted(
        TopicPartition(topic.topic, index)
        for topic in found.assigned_partitions
        for index in topic.partitions
    )
