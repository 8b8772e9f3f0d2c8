"""Collects the input of the balance planner from brokers: loads of brokers and partitions.

Sizes are from two DescribeLogDirs requests, and the growth in between is the produce rate. Rack and
liveness are from Kafka's own requests; host, cordon and release are from DescribeNode.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import trio

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_configs import ConfigEntry, ConfigResource
from ottla.insight.facts.log_dirs_driver import BrokerDirectories, ask_bytes
from ottla.insight.facts.survey_driver import (
    DRAINS,
    MIN_INSYNC_REPLICAS,
    SurveyedBroker,
    brokers_of,
    registrations_of,
)
from ottla.model.balance.cluster_load import BrokerLoad, ClusterLoad, PartitionLoad, Volume
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.settings.resources import ConfigKind
from ottla.model.settings.storage.throttled_replicas import LISTS
from ottla.wire.messages.describe_node_response import NodeRegistration

SAMPLE_S = 1.0
"""Seconds between the two samples of log sizes from which produce rates are computed. With a
shorter interval, slow producers are missed. With a longer interval, the operator waits longer."""

TOPICS_AT_ONCE = 500
"""Number of topics whose settings one request reads."""


@dataclass(slots=True)
class PartitionSize:
    """Size of a partition's largest replica in bytes, and its growth between two samples in
    bytes."""

    size_bytes: int = 0
    grown_bytes: int = 0


async def cluster_load(admin: Admin, leaving: Collection[int] = ()) -> ClusterLoad:
    """Return the state of the cluster as input of the balance planner. `leaving` contains the ids
    of brokers that must not keep any replica."""
    earlier = await ask_bytes(admin)
    started_s = trio.current_time()
    await trio.sleep(SAMPLE_S)
    later = await ask_bytes(admin)
    interval_s = trio.current_time() - started_s
    sizes = _sizes(earlier, later)
    surveyed = await brokers_of(admin)
    registrations = (await registrations_of(admin)).brokers
    moving = set(await admin.list_reassignments())
    metadata = await admin.cluster.metadata()
    settings = await _settings(admin, [topic.name or "" for topic in metadata.topics])
    partitions = []
    for topic in metadata.topics:
        name = topic.name or ""
        min_insync, has_throttle = settings.get(name, (1, False))
        for row in topic.partitions:
            at = TopicPartition(name, row.partition_index)
            size = sizes.get(at, PartitionSize())
            partitions.append(
                PartitionLoad(
                    at=at,
                    replicas=tuple(map(NodeId, row.replica_nodes)),
                    isr=tuple(map(NodeId, row.isr_nodes)),
                    leader=NodeId(row.leader_id),
                    size_bytes=size.size_bytes,
                    produce_bytes_per_s=int(size.grown_bytes / interval_s),
                    min_insync_replicas=min_insync,
                    is_moving=at in moving,
                    has_throttle=has_throttle,
                )
            )
    directories = {one.broker: one for one in later}
    return ClusterLoad(
        brokers=tuple(
            _broker(one, directories.get(NodeId(one.id)), registrations.get(one.id))
            for one in surveyed
        ),
        partitions=tuple(partitions),
        leaving=frozenset(map(NodeId, leaving)),
    )


def _sizes(
    earlier: Sequence[BrokerDirectories], later: Sequence[BrokerDirectories]
) -> dict[TopicPartition, PartitionSize]:
    before = {(one.broker, at): size for one in earlier for at, size in _replicas(one)}
    sizes: dict[TopicPartition, PartitionSize] = {}
    for one in later:
        for at, size in _replicas(one):
            known = sizes.setdefault(at, PartitionSize())
            known.size_bytes = max(known.size_bytes, size)
            # The log of a replica that is being deleted or compacted shrinks.
            grown = size - before.get((one.broker, at), size)
            known.grown_bytes = max(known.grown_bytes, grown)
    return sizes


def _replicas(one: BrokerDirectories) -> list[tuple[TopicPartition, int]]:
    return [
        (at, replica.size_bytes)
        for directory in one.directories
        for at, replica in directory.replicas.items()
        if not replica.is_future
    ]


def _broker(
    broker: SurveyedBroker,
    found: BrokerDirectories | None,
    registration: NodeRegistration | None,
) -> BrokerLoad:
    volumes = None
    if found is not None and not found.failure:
        # Directories of one file system report the same space.
        spaces = dict.fromkeys(
            (one.total_bytes, one.usable_bytes) for one in found.directories if not one.error
        )
        volumes = tuple(
            Volume(total, total - usable)
            for total, usable in spaces
            if total is not None and usable is not None
        )
    return BrokerLoad(
        id=NodeId(broker.id),
        rack=broker.rack,
        host=None if registration is None else registration.host,
        is_active=not broker.is_fenced and broker.state not in DRAINS,
        is_cordoned=registration is not None and registration.is_cordoned,
        version=broker.version,
        volumes=volumes,
    )


async def _settings(admin: Admin, topics: Sequence[str]) -> dict[str, tuple[int, bool]]:
    """Return the settings of each topic: its min.insync.replicas, and True if it has throttled
    replicas. Deleted topics are omitted."""
    keys = (MIN_INSYNC_REPLICAS, *LISTS)
    found: dict[str, tuple[int, bool]] = {}
    for at in range(0, len(topics), TOPICS_AT_ONCE):
        asked = [ConfigResource(ConfigKind.TOPIC, name) for name in topics[at:][:TOPICS_AT_ONCE]]
        for resource, entries in (await admin.try_describe_configs(asked, keys=keys)).items():
            if not isinstance(entries, RefusedError):
                found[resource.name] = _setting(entries)
    return found


def _setting(entries: dict[str, ConfigEntry]) -> tuple[int, bool]:
    minimum = entries.get(MIN_INSYNC_REPLICAS)
    return (
        int(minimum.value) if minimum is not None and minimum.value else 1,
        any(key in entries and entries[key].value for key in LISTS),
    )
