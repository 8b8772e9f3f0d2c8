"""What the cluster is, at one offset of the metadata log; immutable through and through.

Only `fold.apply` makes a next image out of one.  Invariants: an ISR, an ELR and the leader are
among the replicas; ISR and ELR share nobody; `topic_ids` and `partitions_by_broker` say nothing
that `topics` does not say.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from ottla.metadata.acl_table import NO_ACLS, AclTable
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.delegation_tokens import DelegationToken
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
from ottla.model.quota_limits import QuotaEntity
from ottla.model.scram import ScramCredential

FIRST_EPOCH = Epoch(0)
FIRST_PRODUCER_ID = ProducerId(0)


class RecoveryState(IntEnum):
    """Whether the partition's leader was elected with all that was committed."""

    RECOVERED = 0
    RECOVERING = 1


class Endpoint(NamedTuple):
    """Where one listener of a broker is reached."""

    name: str
    host: str
    port: int
    security_protocol: int
    """Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""


class FeatureRange(NamedTuple):
    """The levels of one feature a broker said it supports."""

    name: str
    lowest: int
    highest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """One broker, as it registered; the epoch is the offset of that registration."""

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
    """Those of them that take no new replica (KIP-1066)."""
    principal: str = ""
    """As whom it authenticated (`User:…`); empty where controllers do not ask."""

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """Return where the listener of that name is reached, if the broker has one."""
        return next((found for found in self.endpoints if found.name == listener_name), None)

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead and be in sync."""
        return not self.is_fenced and not self.in_controlled_shutdown

    @property
    def is_cordoned(self) -> bool:
        """Whether none of its directories takes a new replica."""
        return bool(self.log_dirs) and set(self.log_dirs) <= set(self.cordoned_log_dirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Who holds a partition, who is in sync and who leads."""

    replicas: tuple[NodeId, ...]
    """In order of preference: the first is the preferred leader."""
    directories: tuple[UUID, ...]
    """The log directory of each replica, in the order of `replicas`."""
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...] = ()
    """Not in sync, but known to hold all that was committed (KIP-966)."""
    last_known_elr: tuple[NodeId, ...] = ()
    """With ISR and ELR empty: the one who led last."""
    leader: NodeId = NO_NODE
    leader_epoch: Epoch = FIRST_EPOCH
    """Fences clients and followers; rises when the leader changes."""
    partition_epoch: int = 0
    """Rises with every change; the compare-and-set version of AlterPartition."""
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()
    recovery_state: RecoveryState = RecoveryState.RECOVERED
    unclean_leader_epoch: Epoch = FIRST_EPOCH
    """That of the last leader that may have lacked committed records: logs that end in an earlier
    epoch may be cut below their high watermark.  The first epoch is never one."""
    lost: tuple[NodeId, ...] = ()
    """Replicas whose disks lost records, until they are in sync again: the last to be elected."""

    @property
    def preferred_leader(self) -> NodeId:
        """Return the replica that leads when it is in sync."""
        return self.replicas[0]

    def directory_of(self, replica: NodeId) -> UUID:
        """Return the log directory of one of the replicas."""
        return self.directories[self.replicas.index(replica)]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; its id survives delete-and-create of the same name."""

    name: str
    id: UUID
    partitions: PersistentMap[int, PartitionState] = field(default_factory=PersistentMap)


class Provenance(NamedTuple):
    """The last record an image contains."""

    offset: Offset = NO_OFFSET
    epoch: Epoch = NO_EPOCH
    timestamp_ms: int = -1

    @property
    def end(self) -> OffsetAndEpoch:
        """Return the id of a snapshot of this image: the offset after its last record."""
        return OffsetAndEpoch(Offset(self.offset + 1), self.epoch)


NOWHERE = Provenance()
"""Before the first record."""

ConfigResource = tuple[int, str]
"""(Kafka's resource type, name); an empty name is the cluster-wide default of that type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """The whole cluster."""

    provenance: Provenance = NOWHERE
    features: PersistentMap[str, int] = field(default_factory=PersistentMap)
    brokers: PersistentMap[NodeId, BrokerRegistration] = field(default_factory=PersistentMap)
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
    """By Kafka's number of the mechanism, then by user."""
    delegation_tokens: PersistentMap[str, DelegationToken] = field(default_factory=PersistentMap)
    """By id."""
    acls: AclTable = NO_ACLS
    partitions_by_broker: PersistentMap[NodeId, PersistentMap[TopicIdPartition, None]] = field(
        default_factory=PersistentMap
    )
    """Which partitions have a replica on a broker, so that failover costs what failed."""

    def topic(self, name: str) -> Topic | None:
        """Return the topic of that name."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, partition: TopicIdPartition) -> PartitionState | None:
        """Return one partition by its topic's id."""
        topic = self.topics.get(partition.topic_id)
        return None if topic is None else topic.partitions.get(partition.partition)

    def partitions_of(self, broker: NodeId) -> Iterator[tuple[TopicIdPartition, PartitionState]]:
        """Yield every partition with a replica on the broker, sorted."""
        held = self.partitions_by_broker.get(broker, NO_PARTITIONS)
        topics: dict[UUID, Topic] = {}
        for partition in held.keys_by(_order):
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = self.topics[partition.topic_id]
            yield partition, topic.partitions[partition.partition]

    def config(self, resource_type: int, name: str) -> PersistentMap[str, str]:
        """Return what was set dynamically on one resource."""
        return self.configs.get((resource_type, name), NO_CONFIG)

    def is_active(self, broker: NodeId) -> bool:
        """Return whether the broker is registered and may lead."""
        registration = self.brokers.get(broker)
        return registration is not None and registration.is_active


def _order(partition: TopicIdPartition) -> tuple[int, int]:
    # Comparing UUIDs themselves costs a call each: a large broker holds 10,000s of partitions.
    return partition.topic_id.int, partition.partition


NO_PARTITIONS: PersistentMap[TopicIdPartition, None] = PersistentMap()
NO_CONFIG: PersistentMap[str, str] = PersistentMap()
EMPTY = MetadataImage()
"""A cluster before its first record."""
