"""Metadata image: the state of the cluster at one offset of the metadata log; deeply immutable.

Only `fold.apply` derives an image from another one. Invariants: the leader and all members of ISR
and ELR are among the replicas; ISR and ELR are disjoint; `topic_ids` and `partitions_by_broker` are
derived from `topics`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from ottla.metadata.acl_table import NO_ACLS, AclTable
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.ids import (
    NO_EPOCH,
    NO_NODE,
    NO_OFFSET,
    Epoch,
    NodeId,
    Offset,
    OffsetAndEpoch,
    ProducerId,
    TopicIdPartition,
)
from ottla.model.quotas.quota_limits import QuotaEntity
from ottla.model.security.delegation_tokens import DelegationToken
from ottla.model.security.scram import ScramCredential

FIRST_EPOCH = Epoch(0)
FIRST_PRODUCER_ID = ProducerId(0)


class RecoveryState(IntEnum):
    """Recovery state of a partition after its last leader election, clean or unclean."""

    RECOVERED = 0
    RECOVERING = 1


class Endpoint(NamedTuple):
    """Host, port and security protocol of one listener of a node."""

    name: str
    host: str
    port: int
    security_protocol: int
    """Kafka's number of the listener's security protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3
    SASL_SSL."""


class FeatureRange(NamedTuple):
    """Supported levels of one feature, as a node registered them."""

    name: str
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """The registration of one broker. Its epoch is the offset of the registration record."""

    id: NodeId
    epoch: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[FeatureRange, ...] = ()
    rack: str | None = None
    host: str | None = None
    is_fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[UUID, ...] = ()
    cordoned_log_dirs: tuple[UUID, ...] = ()
    """Ids of the broker's cordoned log directories, a subset of `log_dirs`. They get no new
    replicas (KIP-1066)."""
    principal: str = ""
    """Principal under which the broker authenticated (`User:…`). Empty if controllers require no
    authentication."""

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """Return the address of the broker's listener with the given name, or None if the broker
        has no such listener."""
        return next((found for found in self.endpoints if found.name == listener_name), None)

    @property
    def is_active(self) -> bool:
        """True if the broker may lead partitions and be an in-sync replica."""
        return not self.is_fenced and not self.in_controlled_shutdown

    @property
    def is_cordoned(self) -> bool:
        """True if all log directories of the broker are cordoned. The broker then gets no new
        replicas."""
        return bool(self.log_dirs) and set(self.log_dirs) <= set(self.cordoned_log_dirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRegistration:
    """The registration of one controller, which is a voter or an observer that may become a
    voter."""

    id: NodeId
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[FeatureRange, ...] = ()
    software_version: str = ""
    """Version of Ottla that the controller runs.  Empty if the controller did not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Replicas of a partition, its in-sync replicas and its leader."""

    replicas: tuple[NodeId, ...]
    """Broker ids of the partition's replicas, in order of preference: the first is the preferred
    leader."""
    directories: tuple[UUID, ...]
    """Log directory id of each replica of the partition, in the order of `replicas`."""
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...] = ()
    """Broker ids of the partition's eligible leader replicas: not in sync, but known to have all
    committed records (KIP-966)."""
    last_known_elr: tuple[NodeId, ...] = ()
    """The partition's last known leader, recorded only while both ISR and ELR (eligible leader
    replicas) are empty (KIP-966)."""
    leader: NodeId = NO_NODE
    leader_epoch: Epoch = FIRST_EPOCH
    """Leader epoch of the partition. It increases with every change of the leader, and fences
    clients and followers."""
    partition_epoch: int = 0
    """Partition epoch. It increases with every change of the partition. A leader's AlterPartition
    request must have the present one, as in a compare-and-set."""
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()
    recovery_state: RecoveryState = RecoveryState.RECOVERED
    unclean_leader_epoch: Epoch = FIRST_EPOCH
    """Leader epoch of the partition's last leader that may have lacked committed records. A log
    that ends in an earlier epoch may be truncated below its high watermark. The first leader of a
    partition never lacks committed records."""
    lost: tuple[NodeId, ...] = ()
    """Replicas of the partition whose disks lost records, until they are in sync again. The
    controller elects them last."""

    @property
    def preferred_leader(self) -> NodeId:
        """The first replica of the partition, which leads if it is in sync."""
        return self.replicas[0]

    def directory_of(self, replica: NodeId) -> UUID:
        """Return the log directory id of one of the partition's replicas."""
        return self.directories[self.replicas.index(replica)]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its partitions. Its id distinguishes it from a deleted topic of the same name."""

    name: str
    id: UUID
    partitions: PersistentMap[int, PartitionState] = field(default_factory=PersistentMap)


class Provenance(NamedTuple):
    """Offset, epoch and timestamp of the last metadata record in an image."""

    offset: Offset = NO_OFFSET
    epoch: Epoch = NO_EPOCH
    timestamp_ms: int = -1

    @property
    def end(self) -> OffsetAndEpoch:
        """Id of a snapshot of the image: the offset after its last record, and the leader epoch of
        that record."""
        return OffsetAndEpoch(Offset(self.offset + 1), self.epoch)


NOWHERE = Provenance()
"""Provenance (offset and epoch of the last record) of the empty metadata image, before the first
record."""

ConfigResource = tuple[int, str]
"""A resource with dynamic settings: Kafka's resource type, and a name. An empty name is the
cluster-wide default of that type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """State of the whole cluster at one offset of the metadata log."""

    provenance: Provenance = NOWHERE
    features: PersistentMap[str, int] = field(default_factory=PersistentMap)
    brokers: PersistentMap[NodeId, BrokerRegistration] = field(default_factory=PersistentMap)
    controllers: PersistentMap[NodeId, ControllerRegistration] = field(
        default_factory=PersistentMap
    )
    """Registered controllers by node id. Empty below ottla.version 1. A removed voter remains
    registered until an operator unregisters it."""
    topics: PersistentMap[UUID, Topic] = field(default_factory=PersistentMap)
    topic_ids: PersistentMap[str, UUID] = field(default_factory=PersistentMap)
    configs: PersistentMap[ConfigResource, PersistentMap[str, str]] = field(
        default_factory=PersistentMap
    )
    next_producer_id: ProducerId = FIRST_PRODUCER_ID
    client_quotas: PersistentMap[tuple[QuotaEntity, ...], PersistentMap[str, float]] = field(
        default_factory=PersistentMap
    )
    scram_credentials: PersistentMap[int, PersistentMap[str, ScramCredential]] = field(
        default_factory=PersistentMap
    )
    """SCRAM credentials of users, by Kafka's number of the mechanism, then by user."""
    delegation_tokens: PersistentMap[str, DelegationToken] = field(default_factory=PersistentMap)
    """Delegation tokens of the cluster, by token id."""
    acls: AclTable = NO_ACLS
    partitions_by_broker: PersistentMap[NodeId, PersistentMap[TopicIdPartition, None]] = field(
        default_factory=PersistentMap
    )
    """Partitions that have a replica on each broker, by broker id. With this index, the cost of a
    failover depends only on the number of that broker's partitions."""

    def topic(self, name: str) -> Topic | None:
        """Return the topic with a name, or None if the cluster has no such topic."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, partition: TopicIdPartition) -> PartitionState | None:
        """Return the state of the partition with the given topic id and number, or None if the
        cluster has no such partition."""
        topic = self.topics.get(partition.topic_id)
        return None if topic is None else topic.partitions.get(partition.partition)

    def partitions_of(self, broker: NodeId) -> Iterator[tuple[TopicIdPartition, PartitionState]]:
        """Yield every partition with a replica on the broker, with its state, sorted."""
        held = self.partitions_by_broker.get(broker, NO_PARTITIONS)
        topics: dict[UUID, Topic] = {}
        for partition in held.keys_by(order_of_partition):
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = self.topics[partition.topic_id]
            yield partition, topic.partitions[partition.partition]

    def config(self, resource_type: int, name: str) -> PersistentMap[str, str]:
        """Return the dynamic settings of a resource (such as a topic), by key. The map is empty if
        the resource has no dynamic settings."""
        return self.configs.get((resource_type, name), NO_CONFIG)

    def is_active(self, broker: NodeId) -> bool:
        """Return True if the broker is registered and may lead partitions."""
        registration = self.brokers.get(broker)
        return registration is not None and registration.is_active


def order_of_partition(partition: TopicIdPartition) -> tuple[int, int]:
    """Return the sort key of a partition: its topic id, then its number."""
    # Comparing UUIDs themselves costs a function call each, and a large broker has tens of
    # thousands of partitions.
    return partition.topic_id.int, partition.partition


NO_PARTITIONS: PersistentMap[TopicIdPartition, None] = PersistentMap()
NO_CONFIG: PersistentMap[str, str] = PersistentMap()
EMPTY = MetadataImage()
"""Metadata image of a cluster before its first metadata record."""
