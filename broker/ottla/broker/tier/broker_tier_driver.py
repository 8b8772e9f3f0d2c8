"""Creates the parts of a broker's tiered storage, and connects them."""

from collections.abc import Callable
from functools import partial

import trio

from ottla.broker.quotas.tier_quotas import TierQuotas
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.replicas.tier_start import TierStarts
from ottla.broker.tier.cluster_objects_driver import ClusterObjects
from ottla.broker.tier.metadata_topic_driver import MetadataTopic
from ottla.broker.tier.partition_tier_driver import TierPorts
from ottla.broker.tier.remote_log_manager_driver import RemoteLogManager
from ottla.broker.tier.remote_reads import RemoteReads
from ottla.broker.tier.segment_storage_driver import StoreSegments, names_of
from ottla.broker.tier.store_reads_driver import StoreReads
from ottla.broker.tier.tier_figures import TierFigures
from ottla.broker.tier.tier_opening_driver import ClusterStore
from ottla.broker.tier.tier_starts_driver import StoreStarts
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.seams import Clock, Rng
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.storage.tier import (
    COPIERS,
    FETCHES_LAST_TIERED,
    INDEX_CACHE_BYTES,
    READERS,
)
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.admin.forwarding import ForwardingPort, forward_own
from ottla.node.part_registry import PartRegistry
from ottla.storage.tier.remote_segment import RemoteSegment
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse

CREATE_TOPICS_VERSION = 7


class BrokerTier:
    """Tiered storage of one broker: its reads, its background tasks and its metrics."""

    def __init__(
        self,
        config: BrokerConfig,
        cluster_store: ClusterStore,
        *,
        cluster_id: str,
        table: PartitionTable,
        controller: ForwardingPort,
        quotas: TierQuotas,
        clock: Clock,
        rng: Rng,
        errors: UnexpectedErrors,
    ) -> None:
        settings = config.tier
        figures = TierFigures()
        self._cluster_id = cluster_id
        self._traffic = cluster_store.traffic
        self._reader = cluster_store.reader
        self._copy_slots = trio.CapacityLimiter(settings.copier_count)
        self.topic = topic = MetadataTopic(
            settings,
            address=partial(own_address, config, lambda: table.image),
            create_topic=partial(create_topic, config, controller),
            clock=clock,
            alarms=figures.alarms,
        )
        self.reads: RemoteReads = StoreReads(
            table, topic, cluster_store.reader, figures, quotas.fetch
        )
        """Reader of copied segments, for the handlers of requests."""
        self.starts: TierStarts = StoreStarts(
            table, topic, cluster_store.reader, is_after_last=settings.fetches_last_tiered
        )
        """Finder of the copied segment after which a follower's log begins."""
        storage = StoreSegments(
            cluster_store.store,
            cluster_store.reader,
            cluster_id=cluster_id,
            node_id=config.node_id,
            throttle=quotas.throttle_copy,
            is_claimed=cluster_store.is_claimed,
        )
        self.refusal = storage.refusal
        """Function that returns the reason why the store refuses this broker."""
        self.objects = ClusterObjects(
            cluster_store.store,
            cluster_id=cluster_id,
            node_id=config.node_id,
            require_usable=storage.require_usable,
            image=lambda: table.image,
            clock=clock,
            figures=figures,
        )
        self.manager = RemoteLogManager(
            table,
            TierPorts(
                config=settings,
                node_id=config.node_id,
                clock=clock,
                rng=rng,
                image=lambda: table.image,
                topic=topic,
                storage=storage,
                figures=figures,
                errors=errors,
                copy_slots=self._copy_slots,
            ),
            on_image=topic.on_image,
        )
        """Metadata publisher that manages tiered storage. It must run after the replica manager."""

    def keys_of(self, segment: RemoteSegment, topic: str) -> tuple[str, ...]:
        """Return the keys of a segment's objects in the object store."""
        return names_of(self._cluster_id, segment, topic).keys()

    async def shrink_cache(self, size_bytes: int) -> int:
        """Remove cached parts of copied segments from the first log directory, until `size_bytes`
        are freed or the cache is empty. Returns the number of freed bytes."""
        return await self._reader.shrink_files(size_bytes)

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background tasks, metrics, status values and dynamic settings of tiered
        storage."""
        self.topic.register_with(parts)
        self.manager.register_with(parts)
        self.objects.register_with(parts)
        parts.families(self._traffic.families)
        parts.families(self._reader.counts.families)
        parts.setting(FETCHES_LAST_TIERED, self._set_fetches_last_tiered)
        parts.setting(COPIERS, self._set_copier_count)
        parts.setting(READERS, self._reader.set_gets_at_once)
        parts.setting(INDEX_CACHE_BYTES, self._reader.set_index_file_bytes)

    def _set_fetches_last_tiered(self, is_set: bool) -> None:
        self.starts.is_after_last = is_set

    def _set_copier_count(self, count: int) -> None:
        self._copy_slots.total_tokens = count


def own_address(config: BrokerConfig, image: Callable[[], MetadataImage]) -> tuple[str, int] | None:
    """Return the host and port at which other brokers reach this broker, or None if the metadata
    contains no such endpoint."""
    registration = image().brokers.get(config.node_id)
    endpoint = None
    if registration is not None:
        endpoint = registration.endpoint(config.inter_broker_listener)
    return None if endpoint is None else (endpoint.host, endpoint.port)


async def create_topic(
    config: BrokerConfig, controller: ForwardingPort, topic: CreatableTopic
) -> None:
    """Request the creation of the metadata topic from the controller. Raises RefusedError if the
    controller refuses the creation."""
    timeout_ms = config.request_timeout_ms
    response = await forward_own(
        CreateTopicsResponse,
        controller,
        CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms),
        client_id=f"broker-{config.node_id}-remote-log",
        version=CREATE_TOPICS_VERSION,
        timeout_ms=timeout_ms,
    )
    for created in response.topics:
        code = ErrorCode(created.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise RefusedError(code, created.error_message or "")
