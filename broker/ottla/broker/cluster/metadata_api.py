"""Metadata: returns live brokers, topics, and the leader of each partition.

Pure. Topics are requested by name or by id; a null list means all. A missing topic is created first
if both the broker and the client allow it, and the response waits for its creation.
"""

from typing import Any, NamedTuple

from ottla.broker.cluster.auto_create import AutoCreate
from ottla.broker.cluster.cluster_view import ClusterView, is_legal_topic_name
from ottla.metadata.image import PartitionState, Topic
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.model.internal_topics import INTERNAL_TOPICS
from ottla.model.security.acls import AclOperation, ResourceType
from ottla.model.settings.broker import BrokerConfig
from ottla.node.admin.metadata_cache import MetadataCache, answer_when
from ottla.node.authorization.questions import (
    OPERATIONS_COST,
    cluster_operations,
    may,
    may_describe_topic,
    may_on_cluster,
    operations_on,
)
from ottla.node.network.dispatch import HandlerResult, Permissions, RequestContext
from ottla.node.network.purgatory import Purgatory
from ottla.node.network.steps import Answer, StepPace, Steps, begun
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_IDS_FROM = 12
"""First version of Metadata that supports requests by topic id. Versions 10 and 11 have the field,
but do not support it."""

CLUSTER_OPERATIONS_VERSIONS = range(8, 11)
LISTENER_NOT_FOUND_FROM = 6

NO_TOPICS: frozenset[str] = frozenset()

CREATION_WAIT_MS_MAX = 5_000
"""Maximum time in milliseconds that a Metadata request waits for the creation of its missing
topics. After this time, the client must retry."""


class MetadataApi:
    """Handler of Metadata, versions 0 to 13."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        cluster_id: str,
        metadata: MetadataCache,
        purgatory: Purgatory,
        auto_create: AutoCreate,
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._metadata = metadata
        self._purgatory = purgatory
        self._auto_create = auto_create

    def handle(self, context: RequestContext, request: MetadataRequest) -> HandlerResult:
        """Answer the request with the metadata of the requested topics. If missing topics have to
        be created, the response is sent after their creation."""
        return begun(self._serve(context, request))

    def _serve(self, context: RequestContext, request: MetadataRequest) -> Answer:
        if request.topics is not None:
            # As in Kafka, a topic that is named twice is answered once.
            asked = {(topic.name, topic.topic_id): topic for topic in request.topics}
            request.topics = list(asked.values())
        missing, closed = yield from self._to_create(request, context.permissions)
        if missing:
            return self._create_and_answer(context, request, missing, closed)
        return (yield from self._answer(context, request, closed))

    def _to_create(
        self, request: MetadataRequest, permissions: Permissions | None
    ) -> Steps[tuple[list[str], frozenset[str]]]:
        """Return the names of the missing topics to create, and of the missing topics that the
        client may not create."""
        if not (self._config.auto_create_topics_enable and request.allow_auto_topic_creation):
            return [], NO_TOPICS
        pace = StepPace()
        missing: list[str] = []
        closed: list[str] = []
        for topic in request.topics or ():
            if (
                topic.name
                and topic.topic_id == ZERO_UUID
                and topic.name not in self._metadata.image.topic_ids
                and topic.name not in INTERNAL_TOPICS
                and is_legal_topic_name(topic.name)
                and may_describe_topic(permissions, topic.name)
            ):
                (missing if _may_create(permissions, topic.name) else closed).append(topic.name)
            if pace.is_due():
                yield
        return missing, frozenset(closed)

    async def _create_and_answer(
        self,
        context: RequestContext,
        request: MetadataRequest,
        missing: list[str],
        closed: frozenset[str],
    ) -> None:
        attempts = await self._auto_create.create(context, missing)

        def is_settled(name: str) -> bool:
            if name in self._metadata.image.topic_ids:
                return not self._metadata.is_opening(name)
            return any(name in attempt.refused for attempt in attempts)

        answer_when(
            self._purgatory,
            context,
            lambda: all(map(is_settled, missing)),
            lambda: context.complete_begun(begun(self._answer(context, request, closed))),
            deadline_ms=context.arrived_ms + CREATION_WAIT_MS_MAX,
        )

    def _answer(
        self, context: RequestContext, request: MetadataRequest, closed: frozenset[str]
    ) -> Steps[MetadataResponse]:
        permissions = context.permissions
        version = context.api_version
        view = ClusterView(self._metadata.image, self._config, context.peer)
        response = MetadataResponse(
            brokers=[
                MetadataResponseBroker(
                    node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
                )
                for broker in view.contacts()
            ],
            cluster_id=self._cluster_id,
            controller_id=view.controller_id,
            topics=(yield from _topics(_ClientView(view, version, permissions, closed), request)),
        )
        if request.include_topic_authorized_operations:
            pace = StepPace()
            for topic in response.topics:
                if topic.error_code == ErrorCode.NONE:
                    topic.topic_authorized_operations = operations_on(
                        permissions, ResourceType.TOPIC, topic.name or ""
                    )
                if permissions is not None and pace.is_due(OPERATIONS_COST):
                    yield
        if version in CLUSTER_OPERATIONS_VERSIONS:
            response.cluster_authorized_operations = cluster_operations(
                permissions, is_asked=request.include_cluster_authorized_operations
            )
        return response


class _ClientView(NamedTuple):
    """The cluster as one client sees it, with the client's permissions and the version of its
    request."""

    view: ClusterView
    version: int
    permissions: Permissions | None
    closed: frozenset[str]
    """Names of requested topics that do not exist and that the client is not permitted to
    create."""


def _may_create(permissions: Permissions | None, name: str) -> bool:
    return may_on_cluster(permissions, AclOperation.CREATE) or may(
        permissions, AclOperation.CREATE, ResourceType.TOPIC, name
    )


def _topics(client: _ClientView, request: MetadataRequest) -> Steps[list[MetadataResponseTopic]]:
    """Return descriptions of the topics that a client requested, all taken from one metadata
    image."""
    view, version = client.view, client.version
    pace = StepPace()
    topics: list[MetadataResponseTopic] = []
    # Version 0 has no null list: an empty one means all topics.
    if request.topics is None or (version == 0 and not request.topics):
        for topic_name, topic_id in view.image.topic_ids.items():
            if may_describe_topic(client.permissions, topic_name, is_logged=False):
                described = _described(view, view.image.topics[topic_id], version, pace)
                topics.append((yield from described))
            elif pace.is_due():
                yield
        return topics
    for asked in request.topics:
        topics.append((yield from _found(client, asked, pace)))
    return topics


def _found(
    client: _ClientView, asked: MetadataRequestTopic, pace: StepPace
) -> Steps[MetadataResponseTopic]:
    """Return the description of one topic that a client requested, or an entry with its error."""
    view, version = client.view, client.version
    if pace.is_due():
        yield
    name, topic_id = asked.name, asked.topic_id
    if version < TOPIC_IDS_FROM and (name is None or topic_id != ZERO_UUID):
        return _refused(ErrorCode.INVALID_REQUEST, name or "", topic_id)
    if topic_id != ZERO_UUID:
        topic = view.image.topics.get(topic_id)
        if topic is None:
            return _refused(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
        if not may_describe_topic(client.permissions, topic.name):
            return _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
        return (yield from _described(view, topic, version, pace))
    if name and not may_describe_topic(client.permissions, name):
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
    if name in client.closed:
        return _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, topic_id)
    if name is None or not is_legal_topic_name(name):
        return _refused(ErrorCode.INVALID_TOPIC_EXCEPTION, name, topic_id)
    topic = view.image.topic(name)
    if topic is None:
        return _refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, topic_id)
    return (yield from _described(view, topic, version, pace))


def _refused(code: ErrorCode, name: str | None, topic_id: Any) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
    )


def _described(
    view: ClusterView, topic: Topic, version: int, pace: StepPace
) -> Steps[MetadataResponseTopic]:
    partitions: list[MetadataResponsePartition] = []
    for index, state in topic.partitions.items():
        partitions.append(_partition(view, index, state, version))
        if pace.is_due():
            yield
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
    )


def _partition(
    view: ClusterView, index: int, state: PartitionState, version: int
) -> MetadataResponsePartition:
    code, leader_id = view.leader_of(state)
    if code is ErrorCode.LISTENER_NOT_FOUND and version < LISTENER_NOT_FOUND_FROM:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=view.offline_replicas(state),
    )
