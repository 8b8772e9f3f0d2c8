"""Plans the restore of topics from a bucket: the topics, and their first metadata records. Pure.

All input comes from manifests, which may be written by other programs. Names, numbers of partitions
and settings are therefore checked. Invalid topics and settings are not restored, and are reported
as notes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.controller.replication.topics import check_topic_name
from ottla.metadata.directories import UNASSIGNED
from ottla.metadata.image import PartitionState
from ottla.metadata.records import (
    TOPIC_RESOURCE,
    Record,
    config_record,
    partition_record,
    topic_record,
)
from ottla.model.errors import ConfigError, RefusedError
from ottla.model.ids import Epoch, NodeId, TopicPartition
from ottla.model.internal_topics import INTERNAL_TOPICS
from ottla.model.settings.storage.topic import check_topic_texts
from ottla.storage.tier.manifest import SegmentManifest
from ottla.storage.tier.stored_partition import StoredPartition

PARTITIONS_MAX = 100_000
"""Maximum number of partitions that one command restores."""
TIER_SETTINGS = frozenset(
    (
        "remote.storage.enable",
        "local.retention.ms",
        "local.retention.bytes",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.copy.lag.ms",
        "remote.copy.lag.bytes",
    )
)
"""Keys of topic settings that have an effect only in a cluster with tiered storage."""


class RestoredTopic(NamedTuple):
    """Topic of the former cluster, with its logs and settings after the restore."""

    name: str
    topic_id: UUID
    partition_count: int
    settings: Mapping[str, str]
    logs: Mapping[int, StoredPartition]
    """Logs by partition index. A partition without an uploaded segment has no entry, and is empty
    after the restore."""

    @property
    def size_bytes(self) -> int:
        """Total size in bytes of the segments that contain the topic's records."""
        return sum(piece.manifest.size_bytes for log in self.logs.values() for piece in log.pieces)

    def epoch_of(self, partition: int) -> Epoch:
        """Return the newest leader epoch in the log of a partition, or 0 if it has no log."""
        log = self.logs.get(partition)
        return log.epochs[-1].epoch if log else Epoch(0)


class RestorePlan(NamedTuple):
    """Topics to restore, and notes on topics, settings and records that cannot be restored."""

    topics: tuple[RestoredTopic, ...]
    notes: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """Total size in bytes of the segments that contain the records of all topics."""
        return sum(topic.size_bytes for topic in self.topics)

    def placements(
        self, brokers: Sequence[NodeId], replication_factor: int
    ) -> dict[tuple[str, int], tuple[NodeId, ...]]:
        """Return the ids of the brokers with a replica of each partition, by topic name and
        partition index. The partitions of a topic are spread over the brokers."""
        if not 0 < replication_factor <= len(brokers):
            raise ConfigError(
                "--replication-factor",
                f"is {replication_factor}, and there are {len(brokers)} brokers",
            )
        return {
            (topic.name, partition): tuple(
                brokers[(index + partition + replica) % len(brokers)]
                for replica in range(replication_factor)
            )
            for index, topic in enumerate(self.topics)
            for partition in range(topic.partition_count)
        }


def plan_restore(
    manifests: Iterable[SegmentManifest],
    logs: Mapping[tuple[UUID, int], StoredPartition],
    *,
    names: Sequence[str] = (),
    has_tier: bool = False,
    may_lack_records: bool = False,
) -> RestorePlan:
    """Return the plan to restore the topics in `names`, or all topics if `names` is empty.

    `logs` has the log of each partition, by topic id and partition index. If several topics have
    the same name, the topic with the latest upload is restored. With `may_lack_records`, a log with
    gaps is restored from its last gap on.

    Raises ConfigError for a log with gaps without `may_lack_records`, for a topic that is not in
    the bucket, and for too many partitions.
    """
    by_id: dict[UUID, list[SegmentManifest]] = {}
    for manifest in manifests:
        by_id.setdefault(manifest.topic_id, []).append(manifest)
    latest = {
        topic_id: max(own, key=lambda one: (one.event_timestamp_ms, one.segment_id))
        for topic_id, own in by_id.items()
    }
    chosen: dict[str, UUID] = {}
    notes: list[str] = []
    for topic_id, one in sorted(latest.items(), key=lambda item: item[1].event_timestamp_ms):
        if not _may_be_restored(one.topic):
            notes.append(f"topic {one.topic} is left out: its name is invalid, or internal")
        elif not names or one.topic in names:
            if one.topic in chosen:
                notes.append(f"topic {one.topic}: an older one of this name is left out")
            chosen[one.topic] = topic_id
    if missing := [name for name in names if name not in chosen]:
        raise ConfigError("--topic", f"{', '.join(missing)} is not in the bucket")
    topics = []
    for name, topic_id in sorted(chosen.items()):
        own = {partition: log for (of, partition), log in logs.items() if of == topic_id}
        for partition, log in own.items():
            for start, end in log.gaps:
                text = f"{name}:{partition} lacks its offsets {start} to {end - 1}"
                if not may_lack_records:
                    raise ConfigError(
                        "--uri", f"{text}; add --allow-missing to restore what follows them"
                    )
                notes.append(f"{text} and all before")
        count = max(one.partition_count for one in by_id[topic_id])
        if count > PARTITIONS_MAX:
            raise ConfigError("--uri", f"topic {name} has {count} partitions, too many")
        if empty := [str(one) for one in range(count) if one not in own]:
            shown = ", ".join(empty[:10]) + (", …" if len(empty) > 10 else "")
            notes.append(f"topic {name}: no records of partitions {shown}, which begin at offset 0")
        topics.append(
            RestoredTopic(
                name,
                topic_id,
                count,
                _settings(latest[topic_id], has_tier=has_tier, notes=notes),
                {partition: log.after_last_gap() for partition, log in own.items()},
            )
        )
    if sum(topic.partition_count for topic in topics) > PARTITIONS_MAX:
        raise ConfigError("--uri", f"the topics have more than {PARTITIONS_MAX:,} partitions")
    return RestorePlan(tuple(topics), tuple(notes))


def first_records(
    plan: RestorePlan, placements: Mapping[tuple[str, int], tuple[NodeId, ...]]
) -> list[Record]:
    """Return the metadata records of the restored topics, for the first start of the new cluster.

    Topics keep their ids. The leader epoch of a partition is the newest epoch of its records, so
    that the first election chooses a higher one. All replicas are in sync, because all have the
    same files.
    """
    records = []
    for topic in plan.topics:
        records.append(topic_record(topic.name, topic.topic_id))
        for partition in range(topic.partition_count):
            replicas = placements[topic.name, partition]
            state = PartitionState(
                replicas=replicas,
                directories=(UNASSIGNED,) * len(replicas),
                isr=replicas,
                leader_epoch=topic.epoch_of(partition),
            )
            records.append(partition_record(topic.topic_id, partition, state))
        records += [
            config_record(TOPIC_RESOURCE, topic.name, key, value)
            for key, value in sorted(topic.settings.items())
        ]
    return records


def replicas_of(
    plan: RestorePlan,
    placements: Mapping[tuple[str, int], tuple[NodeId, ...]],
    broker: NodeId,
) -> dict[TopicPartition, tuple[UUID, StoredPartition]]:
    """Return the logs that a broker has after the restore, each with its topic id."""
    return {
        TopicPartition(topic.name, partition): (topic.topic_id, log)
        for topic in plan.topics
        for partition, log in topic.logs.items()
        if broker in placements[topic.name, partition]
    }


def _may_be_restored(name: str) -> bool:
    try:
        check_topic_name(name)
    except RefusedError:
        return False
    return name not in INTERNAL_TOPICS


def _settings(manifest: SegmentManifest, *, has_tier: bool, notes: list[str]) -> dict[str, str]:
    """Return the valid settings in a topic's manifest, and add a note for each invalid setting to
    `notes`."""
    found = {}
    for key, value in manifest.topic_settings.items():
        if not has_tier and key in TIER_SETTINGS:
            continue
        try:
            check_topic_texts({key: value})
        except RefusedError as error:
            notes.append(f"topic {manifest.topic}: {error}")
            continue
        found[key] = value
    return found
