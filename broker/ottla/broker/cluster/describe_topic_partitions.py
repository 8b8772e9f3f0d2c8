"""DescribeTopicPartitions: describes topics page by page, with eligible leader replicas (KIP-966).
Pure."""

from collections.abc import Iterable

from ottla.broker.cluster.cluster_view import ClusterView, is_legal_topic_name
from ottla.metadata.image import PartitionState, Topic
from ottla.model.errors import ErrorCode
from ottla.model.internal_topics import INTERNAL_TOPICS
from ottla.model.security.acls import ResourceType
from ottla.model.settings.broker import BrokerConfig
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.authorization.questions import (
    OPERATIONS_COST,
    may_describe_topic,
    operations_on,
)
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.steps import StepPace, Steps, begun
from ottla.wire.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from ottla.wire.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

PARTITIONS_PER_ANSWER_MAX = 2_000
"""Maximum number of partitions in one response, even if the client requests more. The corresponding
setting in Kafka is `max.request.partition.size.limit`."""


class DescribeTopicPartitionsApi:
    """Handler of DescribeTopicPartitions, version 0."""

    def __init__(self, *, config: BrokerConfig, metadata: MetadataCache) -> None:
        self._config = config
        self._metadata = metadata

    def handle(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> HandlerResult:
        """Answer the request with topics in order of their names, beginning at the request's
        cursor. The response contains at most the requested number of partitions, and at most
        PARTITIONS_PER_ANSWER_MAX."""
        return begun(self._answer(context, request))

    def _answer(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> Steps[DescribeTopicPartitionsResponse]:
        pace = StepPace()
        view = ClusterView(self._metadata.image, self._config, context.peer)
        permissions = context.permissions
        are_named = bool(request.topics)
        names = {topic.name for topic in request.topics} if are_named else view.image.topic_ids
        cursor = request.cursor
        if cursor is not None and cursor.partition_index < 0:
            return (yield from _refused(names, pace))
        first_name = "" if cursor is None else cursor.topic_name
        left = max(1, min(request.response_partition_limit, PARTITIONS_PER_ANSWER_MAX))
        response = DescribeTopicPartitionsResponse()
        hidden: list[DescribeTopicPartitionsResponseTopic] = []
        for name in sorted(name for name in names if name >= first_name):
            if pace.is_due():
                yield
            if not may_describe_topic(permissions, name, is_logged=are_named):
                if are_named:
                    hidden.append(_not_allowed(name))
                continue
            topic = view.image.topic(name)
            if topic is None:
                response.topics.append(_unknown(name))
                continue
            first = cursor.partition_index if cursor is not None and name == first_name else 0
            if not left:
                response.next_cursor = Cursor(topic_name=name, partition_index=first)
                break
            described, next_index = yield from _described(view, topic, max(first, 0), left, pace)
            left -= len(described.partitions)
            described.topic_authorized_operations = operations_on(
                permissions, ResourceType.TOPIC, name
            )
            if permissions is not None and pace.is_due(OPERATIONS_COST):
                yield
            response.topics.append(described)
            if next_index is not None:
                response.next_cursor = Cursor(topic_name=name, partition_index=next_index)
                break
        response.topics += hidden
        return response


def _refused(names: Iterable[str], pace: StepPace) -> Steps[DescribeTopicPartitionsResponse]:
    """Return the response that refuses an invalid cursor (the position from which to list
    partitions). The error is repeated in each topic, since the response has no other field for it.
    """
    response = DescribeTopicPartitionsResponse()
    for name in sorted(names):
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(name=name, error_code=ErrorCode.INVALID_REQUEST)
        )
        if pace.is_due():
            yield
    return response


def _not_allowed(name: str) -> DescribeTopicPartitionsResponseTopic:
    """Return the response entry for a topic that the client may not describe. The entry does not
    reveal whether the topic exists."""
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_legal_topic_name(name)
        else ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, is_internal=name in INTERNAL_TOPICS
    )


def _described(
    view: ClusterView, topic: Topic, first: int, limit: int, pace: StepPace
) -> Steps[tuple[DescribeTopicPartitionsResponseTopic, int | None]]:
    """Describe up to `limit` partitions of a topic, beginning at partition index `first`. Also
    returns the index of the next partition, or None after the last partition."""
    end = min(first + limit, len(topic.partitions))
    partitions = []
    for index in range(first, end):
        partitions.append(_partition(view, index, topic.partitions[index]))
        if pace.is_due():
            yield
    described = DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
    )
    return described, end if end < len(topic.partitions) else None


def _partition(
    view: ClusterView, index: int, state: PartitionState
) -> DescribeTopicPartitionsResponsePartition:
    code, leader_id = view.leader_of(state)
    return DescribeTopicPartitionsResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=list(state.last_known_elr),
        offline_replicas=view.offline_replicas(state),
    )
