"""FindCoordinator: which broker coordinates a group.

Pure, but for the topic it may have made.  That is the leader of the group's partition of
`__consumer_offsets`.  The first group of a cluster has that topic made, and waits until it has
leaders and this broker serves its share of it: sent too early, a client would be sent away again,
and take seconds to come back.  A producer's transactions have no coordinator yet.
"""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ottla.broker.auto_create import AutoCreate
from ottla.broker.cluster_view import ClusterView
from ottla.broker.dispatch import RequestContext
from ottla.broker.groups.placement import partition_of
from ottla.broker.metadata_cache import answer_when
from ottla.broker.purgatory import Purgatory
from ottla.broker.transactions import refusal_of_transactions
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_NODE
from ottla.model.internal_topics import OFFSETS_TOPIC
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.groups import GroupConfig
from ottla.wire.codec_types import Message
from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse

BATCHED_FROM = 4
"""The first version that asks for several keys at once (KIP-699)."""

GROUP, TRANSACTION, SHARE = 0, 1, 2
SHARE_FROM = 6

STATE_TOPICS = {GROUP: OFFSETS_TOPIC}
"""Where the state of each kind lies that has a coordinator here; share groups have none yet."""

NO_PORT = -1

TOPIC_WAIT_MS = 2_000
"""How long the answer waits for the leaders of a new offsets topic; clients ask again."""


def offsets_topic(config: GroupConfig) -> CreatableTopic:
    """Return how the topic of committed offsets is made."""
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


class Address(NamedTuple):
    """Where a coordinator is."""

    node_id: int
    host: str
    port: int


class FindCoordinatorApi:
    """Serves FindCoordinator 0-6."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        followed: Callable[[], MetadataImage],
        purgatory: Purgatory,
        auto_create: AutoCreate,
        is_opening: Callable[[str], bool],
    ) -> None:
        """`followed` returns the image that this broker's own coordinator has followed.

        `is_opening` says whether logs of a topic are being opened here for the first time.
        """
        self._config = config
        self._followed = followed
        self._purgatory = purgatory
        self._auto_create = auto_create
        self._is_opening = is_opening

    def handle(
        self, context: RequestContext, request: FindCoordinatorRequest
    ) -> Message | Coroutine[Any, Any, None]:
        """Answer from the metadata; have the offsets topic made first where it is not there."""
        topic = STATE_TOPICS.get(request.key_type)
        if topic is not None and self._followed().topic(topic) is None:
            return self._create_and_answer(context, request, topic)
        return self._response(context, request)

    async def _create_and_answer(
        self, context: RequestContext, request: FindCoordinatorRequest, topic: str
    ) -> None:
        (attempt,) = await self._auto_create.create(context, [topic])
        answer_when(
            self._purgatory,
            context,
            lambda: self._has_leaders(topic) or topic in attempt.refused,
            lambda: context.slot.complete(self._response(context, request)),
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
    ) -> FindCoordinatorResponse:
        if context.api_version < BATCHED_FROM:
            found = self._coordinator(context, request.key_type, request.key)
            return FindCoordinatorResponse(
                error_code=found.error_code,
                error_message=found.error_message,
                node_id=found.node_id,
                host=found.host,
                port=found.port,
            )
        return FindCoordinatorResponse(
            coordinators=[
                self._coordinator(context, request.key_type, key)
                for key in request.coordinator_keys
            ]
        )

    def _coordinator(self, context: RequestContext, key_type: int, key: str) -> Coordinator:
        try:
            address = self._address(context, key_type, key)
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

    def _address(self, context: RequestContext, key_type: int, key: str) -> Address:
        known = (
            (GROUP, TRANSACTION, SHARE)
            if context.api_version >= SHARE_FROM
            else (GROUP, TRANSACTION)
        )
        if key_type not in known:
            raise RefusedError(ErrorCode.INVALID_REQUEST)
        if key_type == TRANSACTION:
            raise refusal_of_transactions()
        image = self._followed()
        topic = image.topic(STATE_TOPICS[key_type]) if key_type in STATE_TOPICS else None
        if topic is not None:
            state = topic.partitions.get(partition_of(key, len(topic.partitions)))
            for broker in ClusterView(image, self._config, context.peer).brokers():
                if state is not None and broker.node_id == state.leader:
                    return Address(broker.node_id, broker.host, broker.port)
        raise RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
