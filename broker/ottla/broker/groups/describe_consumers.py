"""ConsumerGroupDescribe: where a consumer group and each of its members stand (KIP-848).  Pure."""

from collections.abc import Callable

from ottla.broker.authorization.questions import may_describe_topic, operations_on
from ottla.broker.groups.consumer_group import ConsumerGroup
from ottla.broker.groups.consumer_member import Assignment as Partitions
from ottla.broker.groups.consumer_member import ConsumerMember
from ottla.broker.groups.coordinator_door import CoordinatorDoor
from ottla.broker.network.dispatch import HandlerResult, Permissions, RequestContext
from ottla.broker.network.steps import StepPace, Steps, begun
from ottla.metadata.image import MetadataImage
from ottla.model.acls import ResourceType
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_describe_response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Which protocol a member speaks; told since version 1."""

MEMBER_COST = 10
"""A member comes with its assignment and its target."""


class ConsumerGroupDescribeApi:
    """Serves ConsumerGroupDescribe 0-1.

    `is_served` tells whether this broker has the consumer protocol at the moment, `image` what the
    topics' names are.
    """

    def __init__(
        self,
        coordinator: CoordinatorDoor,
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
        """Answer for each group by itself, once however often it is named."""
        return begun(self._describe_all(request, context.permissions))

    def _describe_all(
        self, request: ConsumerGroupDescribeRequest, permissions: Permissions | None
    ) -> Steps[ConsumerGroupDescribeResponse]:
        pace = StepPace()
        groups = []
        for group_id in dict.fromkeys(request.group_ids):
            try:
                found = self._describe(group_id)
                yield from _check_topics(found, permissions, pace)
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
        group = self._coordinator.shard_of(group_id).groups.get(group_id)
        if group is None:
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            reason = f"Group {group_id} is not a consumer group."
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, reason)
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


def _check_topics(
    found: DescribedGroup, permissions: Permissions | None, pace: StepPace
) -> Steps[None]:
    """Refuse to show a group that works on a topic which the client may not see."""
    if permissions is None:
        return
    names = {
        topic.topic_name
        for member in found.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
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
    """Return partitions with the names of their topics; not of topics that are gone."""
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
