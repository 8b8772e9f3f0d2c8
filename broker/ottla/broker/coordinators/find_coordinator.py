"""FindCoordinator: returns the broker that coordinates a group, a transactional id or a share
partition. Pure.

This broker is the leader of the key's partition in `__consumer_offsets`, `__transaction_state` or
`__share_group_state`. If the topic does not exist yet, the request creates it. The response then
waits until the topic has leaders and this broker serves its partitions. After an earlier response,
the coordinator would refuse the client, which would take seconds to retry.
"""

from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.cluster.auto_create import AutoCreate
from ottla.broker.cluster.cluster_view import ClusterView
from ottla.broker.coordinators.placement import partition_of
from ottla.broker.coordinators.share_persister import parse_share_partition_key
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_NODE, NodeId
from ottla.model.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.share_state import ShareStateConfig
from ottla.model.settings.transactions import TransactionConfig
from ottla.node.admin.metadata_cache import answer_when
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.purgatory import Purgatory
from ottla.node.network.steps import StepPace, Steps, begun
from ottla.wire.apis import COORDINATOR_KEYS_FROM
from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2
SHARE_FROM = 6

STATE_TOPICS = {
    GROUP: OFFSETS_TOPIC,
    TRANSACTION: TRANSACTIONS_TOPIC,
    SHARE: SHARE_STATE_TOPIC,
}
"""Internal topic that stores the state of each kind of coordinator, by the key type of a
FindCoordinator request."""

NO_PORT = -1

TOPIC_WAIT_MS = 2_000
"""Maximum milliseconds that a FindCoordinator response waits until a new topic has leaders. After
that, the client must retry."""


def offsets_topic(config: GroupConfig) -> CreatableTopic:
    """Return the specification for the creation of the topic `__consumer_offsets`."""
    settings = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    return CreatableTopic(
        name=OFFSETS_TOPIC,
        num_partitions=config.offsets_topic_num_partitions,
        replication_factor=config.offsets_topic_replication_factor,
        configs=[CreatableTopicConfig(name=name, value=text) for name, text in settings.items()],
    )


def transactions_topic(config: TransactionConfig) -> CreatableTopic:
    """Return the specification for the creation of the topic `__transaction_state`."""
    settings = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": str(config.state_log_segment_bytes),
        "min.insync.replicas": str(config.state_log_min_isr),
        "unclean.leader.election.enable": "false",
    }
    return CreatableTopic(
        name=TRANSACTIONS_TOPIC,
        num_partitions=config.state_log_num_partitions,
        replication_factor=config.state_log_replication_factor,
        configs=[CreatableTopicConfig(name=name, value=text) for name, text in settings.items()],
    )


def share_state_topic(config: ShareStateConfig) -> CreatableTopic:
    """Return the specification for the creation of the topic `__share_group_state`.

    Records are not deleted by age, because the share coordinator itself deletes the records of this
    topic.
    """
    settings = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "segment.bytes": str(config.topic_segment_bytes),
        "min.insync.replicas": str(config.topic_min_isr),
        "retention.ms": "-1",
    }
    return CreatableTopic(
        name=SHARE_STATE_TOPIC,
        num_partitions=config.topic_num_partitions,
        replication_factor=config.topic_replication_factor,
        configs=[CreatableTopicConfig(name=name, value=text) for name, text in settings.items()],
    )


class CoordinatorAddress(NamedTuple):
    """Broker id, host and port of the broker that is a coordinator."""

    node_id: int
    host: str
    port: int


class FindCoordinatorApi:
    """Handler of FindCoordinator, versions 0 to 6."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        followed: Callable[[], MetadataImage],
        purgatory: Purgatory,
        auto_create: AutoCreate,
        is_opening: Callable[[str], bool],
    ) -> None:
        """Create the handler of FindCoordinator. `followed` returns the metadata image that this
        broker's own coordinators have applied. `is_opening` returns True while this broker opens
        the logs of a topic for the first time."""
        self._config = config
        self._followed = followed
        self._purgatory = purgatory
        self._auto_create = auto_create
        self._is_opening = is_opening

    def handle(self, context: RequestContext, request: FindCoordinatorRequest) -> HandlerResult:
        """Answer the request with the coordinators that the metadata names. If the coordinators'
        topic does not exist, create it first."""
        topic = _state_topic(context.api_version, request)
        if topic is not None and self._followed().topic(topic) is None:
            return self._create_and_answer(context, request, topic)
        if topic is not None and self._is_opening(topic):
            self._answer_when_ready(context, request, topic, is_refused=lambda: False)
            return None
        return begun(self._response(context, request))

    async def _create_and_answer(
        self, context: RequestContext, request: FindCoordinatorRequest, topic: str
    ) -> None:
        (attempt,) = await self._auto_create.create(context, [topic])
        self._answer_when_ready(
            context, request, topic, is_refused=lambda: topic in attempt.refused
        )

    def _answer_when_ready(
        self,
        context: RequestContext,
        request: FindCoordinatorRequest,
        topic: str,
        *,
        is_refused: Callable[[], bool],
    ) -> None:
        """Send the response when all partitions of the coordinators' topic have leaders and this
        broker has opened the logs of the partitions that it leads, or at the deadline.

        A coordinator whose log is not open yet would return COORDINATOR_LOAD_IN_PROGRESS, which
        admin clients report to their users.
        """
        answer_when(
            self._purgatory,
            context,
            lambda: self._has_leaders(topic) or is_refused(),
            lambda: context.complete_begun(begun(self._response(context, request))),
            deadline_ms=context.arrived_ms + TOPIC_WAIT_MS,
        )

    def _has_leaders(self, name: str) -> bool:
        topic = self._followed().topic(name)
        return (
            topic is not None
            and all(state.leader != NO_NODE for state in topic.partitions.values())
            and not self._is_opening(name)
        )

    def _response(
        self, context: RequestContext, request: FindCoordinatorRequest
    ) -> Steps[FindCoordinatorResponse]:
        image = self._followed()
        view = ClusterView(image, self._config, context.peer)
        addresses = {
            broker.node_id: CoordinatorAddress(broker.node_id, broker.host, broker.port)
            for broker in view.brokers()
        }

        def found(key: str) -> Coordinator:
            return _coordinator(image, addresses, context.api_version, request.key_type, key)

        if context.api_version < COORDINATOR_KEYS_FROM:
            one = found(request.key)
            return FindCoordinatorResponse(
                error_code=one.error_code,
                error_message=one.error_message,
                node_id=one.node_id,
                host=one.host,
                port=one.port,
            )
        pace = StepPace()
        response = FindCoordinatorResponse()
        for key in dict.fromkeys(request.coordinator_keys):
            response.coordinators.append(found(key))
            if pace.is_due():
                yield
        return response


def _state_topic(version: int, request: FindCoordinatorRequest) -> str | None:
    """Return the name of the internal topic that must exist before a FindCoordinator request can be
    answered. Returns None if the request will be refused."""
    if request.key_type == SHARE and (
        version < SHARE_FROM or not any(map(parse_share_partition_key, request.coordinator_keys))
    ):
        return None
    return STATE_TOPICS.get(request.key_type)


def _coordinator(
    image: MetadataImage,
    addresses: dict[NodeId, CoordinatorAddress],
    version: int,
    key_type: int,
    key: str,
) -> Coordinator:
    try:
        address = _address(image, addresses, version, key_type, key)
    except RefusedError as refusal:
        return Coordinator(
            key=key,
            node_id=NO_NODE,
            port=NO_PORT,
            error_code=refusal.code,
            error_message=refusal.message,
        )
    return Coordinator(
        key=key,
        node_id=address.node_id,
        host=address.host,
        port=address.port,
        error_message=None,
    )


def _address(
    image: MetadataImage,
    addresses: dict[NodeId, CoordinatorAddress],
    version: int,
    key_type: int,
    key: str,
) -> CoordinatorAddress:
    known = (GROUP, TRANSACTION, SHARE) if version >= SHARE_FROM else (GROUP, TRANSACTION)
    if key_type not in known:
        raise RefusedError(ErrorCode.INVALID_REQUEST)
    if key_type == SHARE and parse_share_partition_key(key) is None:
        raise RefusedError(ErrorCode.INVALID_REQUEST)
    topic = image.topic(STATE_TOPICS[key_type])
    if topic is not None:
        state = topic.partitions.get(partition_of(key, len(topic.partitions)))
        if state is not None and state.leader in addresses:
            return addresses[state.leader]
    raise RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
