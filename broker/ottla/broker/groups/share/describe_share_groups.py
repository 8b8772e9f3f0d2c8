"""ShareGroupDescribe: describes the epochs, members and assignments of share groups (KIP-932).
Pure."""

from collections.abc import Callable

from ottla.broker.groups.consumer.consumer_member import Assignment as Partitions
from ottla.broker.groups.consumer.describe_consumers import MEMBER_COST, check_described_topics
from ottla.broker.groups.group_coordinator import GroupCoordinator
from ottla.broker.groups.share.share_member import ShareMember
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.acls import ResourceType
from ottla.node.authorization.questions import operations_on
from ottla.node.network.dispatch import HandlerResult, Permissions, RequestContext
from ottla.node.network.steps import StepPace, Steps, begun
from ottla.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from ottla.wire.messages.share_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

ASSIGNOR = "simple"


class ShareGroupDescribeApi:
    """Handler of ShareGroupDescribe, version 1.

    `is_served` returns True if the cluster's share.version includes share groups. `image` returns
    the metadata with the topic names.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        *,
        is_served: Callable[[], bool],
        image: Callable[[], MetadataImage],
    ) -> None:
        self._coordinator = coordinator
        self._is_served = is_served
        self._image = image

    def describe(
        self, context: RequestContext, request: ShareGroupDescribeRequest
    ) -> HandlerResult:
        """Describe each share group once, even if it is named several times."""
        return begun(self._describe_all(request, context.permissions))

    def _describe_all(
        self, request: ShareGroupDescribeRequest, permissions: Permissions | None
    ) -> Steps[ShareGroupDescribeResponse]:
        pace = StepPace()
        groups = []
        for group_id in dict.fromkeys(request.group_ids):
            try:
                found = self._describe(group_id)
                names = {
                    topic.topic_name
                    for member in found.members
                    for topic in member.assignment.topic_partitions
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
        return ShareGroupDescribeResponse(groups=groups)

    def _describe(self, group_id: str) -> DescribedGroup:
        if not self._is_served():
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            raise RefusedError(ErrorCode.INVALID_GROUP_ID)
        group = self._coordinator.shard_of(group_id).shares.existing(group_id)
        image = self._image()
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.group_epoch,
            assignment_epoch=group.target_epoch,
            assignor_name=ASSIGNOR,
            members=[
                _member(group.members[member_id], image) for member_id in sorted(group.members)
            ],
        )


def _member(member: ShareMember, image: MetadataImage) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client.id,
        client_host=member.client.host,
        subscribed_topic_names=sorted(member.subscribed_names),
        assignment=_named(member.assigned, image),
    )


def _named(partitions: Partitions, image: MetadataImage) -> Assignment:
    """Return a member's partitions, with topic names, in the form of the ShareGroupDescribe
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
