"""ConsumerGroupDescribe: describes groups and members, with their epochs and assignments (KIP-848).
Pure."""

from collections.abc import Callable, Iterable

from ottla.broker.groups.consumer.consumer_member import Assignment as Partitions
from ottla.broker.groups.consumer.consumer_member import ConsumerMember
from ottla.broker.groups.group_coordinator import GroupCoordinator
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.acls import ResourceType
from ottla.node.authorization.questions import may_describe_topic, operations_on
from ottla.node.network.dispatch import HandlerResult, Permissions, RequestContext
from ottla.node.network.steps import StepPace, Steps, begun
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_describe_response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Values for the protocol of a group member in ConsumerGroupDescribe responses since version 1."""

MEMBER_COST = 10
"""Cost of describing a group member with its current and target assignments. Describing a group
without members has the cost 1."""


class ConsumerGroupDescribeApi:
    """Handler of ConsumerGroupDescribe, versions 0 and 1.

    `is_served` returns True while this broker supports the consumer protocol. `image` returns the
    metadata with the topic names.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        *,
        default_assignor: str,
        is_served: Callable[[], bool],
        image: Callable[[], MetadataImage],
    ) -> None:
        self._coordinator = coordinator
        self._default_assignor = default_assignor
        self._is_served = is_served
        self._image = image

    def describe(
        self, context: RequestContext, request: ConsumerGroupDescribeRequest
    ) -> HandlerResult:
        """Describe each consumer group once, even if it is named several times."""
        return begun(self._describe_all(request, context.permissions))

    def _describe_all(
        self, request: ConsumerGroupDescribeRequest, permissions: Permissions | None
    ) -> Steps[ConsumerGroupDescribeResponse]:
        pace = StepPace()
        groups = []
        for group_id in dict.fromkeys(request.group_ids):
            try:
                found = self._describe(group_id)
                names = {
                    topic.topic_name
                    for member in found.members
                    for assignment in (member.assignment, member.target_assignment)
                    for topic in assignment.topic_partitions
                }
                yield from check_described_topics(names, permissions, pace)
                if request.include_authorized_operations:
                    found.authorized_operations = operations_on(
                        permissions, ResourceType.GROUP, group_id
                    )
            except RefusedError as refusal:
                found = DescribedGroup(
                    group_id=group_id,
                    error_code=refusal.code,
                    error_message=refusal.message,
                )
            groups.append(found)
            if pace.is_due(1 + MEMBER_COST * len(found.members)):
                yield
        return ConsumerGroupDescribeResponse(groups=groups)

    def _describe(self, group_id: str) -> DescribedGroup:
        if not self._is_served():
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            raise RefusedError(ErrorCode.INVALID_GROUP_ID)
        shard = self._coordinator.shard_of(group_id)
        group = shard.consumers.find(group_id)
        if group is None:
            reason = "is not a consumer group" if group_id in shard.groups else "not found"
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
        image = self._image()
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.group_epoch,
            assignment_epoch=group.target_epoch,
            assignor_name=group.assignor_name(self._default_assignor),
            members=[
                _member(group.members[member_id], group.target_of(member_id), image)
                for member_id in sorted(group.members)
            ],
        )


def check_described_topics(
    names: Iterable[str], permissions: Permissions | None, pace: StepPace
) -> Steps[None]:
    """Raise RefusedError if a group uses a topic that the client may not describe."""
    if permissions is None:
        return
    for name in names:
        if pace.is_due():
            yield
        if not may_describe_topic(permissions, name):
            raise RefusedError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The group has described topic(s) that the client is not authorized to describe.",
            )


def _member(member: ConsumerMember, target: Partitions, image: MetadataImage) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client.id,
        client_host=member.client.host,
        subscribed_topic_names=sorted(member.subscribed_names),
        subscribed_topic_regex=member.subscribed_regex,
        assignment=_named(member.assigned, image),
        target_assignment=_named(target, image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _named(partitions: Partitions, image: MetadataImage) -> Assignment:
    """Return a member's partitions, with topic names, in the form of the ConsumerGroupDescribe
    response. Deleted topics are left out."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic_id,
                topic_name=image.topics[topic_id].name,
                partitions=sorted(partitions[topic_id]),
            )
            for topic_id in sorted(partitions)
            if topic_id in image.topics
        ]
    )
