"""Writer of the logs of partitions for a new broker whose records stay in the bucket.

Each log is empty and begins where its copied records end, like the log of a new replica whose
leader has its older records only in the object store (KIP-405). The metadata of the copied segments
is written into the partitions of `__remote_log_metadata`, so that the first leader can read the
bucket at once.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from ottla.broker.tier.metadata_topic import (
    REMOTE_METADATA_TOPIC,
    metadata_partition_of,
    remote_metadata_topic,
)
from ottla.cli.tier.restored_files_driver import write_checkpoints
from ottla.metadata.directories import UNASSIGNED
from ottla.metadata.image import PartitionState
from ottla.metadata.records import (
    TOPIC_RESOURCE,
    Record,
    config_record,
    partition_record,
    topic_record,
)
from ottla.model.ids import Epoch, NodeId, Offset, TopicIdPartition, TopicPartition
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.log.log import Log, open_log
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.tier.bucket_driver import read_index
from ottla.storage.tier.manifest import IndexKind, SegmentManifest
from ottla.storage.tier.remote_records import RemoteLogEntry, encode_record
from ottla.storage.tier.remote_segment import RemoteSegmentState, RemoteSegmentUpdate
from ottla.storage.tier.store_seam import ObjectStore
from ottla.storage.tier.stored_partition import StoredPartition
from ottla.wire.batch_builder import build_batch

METADATA_PARTITIONS = 50
"""Number of partitions of the topic `__remote_log_metadata`. It is Kafka's default."""
ENTRIES_PER_BATCH = 100


class RestoredMetadataTopic:
    """The topic `__remote_log_metadata` of a restored cluster: its id, and the placement of its
    replicas."""

    def __init__(self, topic_id: UUID, brokers: Sequence[NodeId], replication_factor: int) -> None:
        self.topic_id = topic_id
        self._brokers = brokers
        self._factor = replication_factor

    def replicas(self, partition: int) -> tuple[NodeId, ...]:
        """Return the brokers of a partition's replicas, the preferred leader first."""
        count = len(self._brokers)
        return tuple(self._brokers[(partition + at) % count] for at in range(self._factor))

    def first_records(self, *, min_insync_replicas: int) -> list[Record]:
        """Return the cluster metadata records that create the topic."""
        records = [topic_record(REMOTE_METADATA_TOPIC, self.topic_id)]
        for partition in range(METADATA_PARTITIONS):
            replicas = self.replicas(partition)
            state = PartitionState(
                replicas=replicas,
                directories=(UNASSIGNED,) * len(replicas),
                isr=replicas,
                leader_epoch=Epoch(0),
            )
            records.append(partition_record(self.topic_id, partition, state))
        wanted = remote_metadata_topic(
            partition_count=METADATA_PARTITIONS,
            replication_factor=self._factor,
            min_insync_replicas=min_insync_replicas,
        )
        return records + [
            config_record(TOPIC_RESOURCE, REMOTE_METADATA_TOPIC, one.name, one.value)
            for one in wanted.configs
        ]


def entries_of(manifests: Iterable[SegmentManifest]) -> dict[int, list[RemoteLogEntry]]:
    """Return the records about copied segments that the topic `__remote_log_metadata` must contain,
    by its partition."""
    found: dict[int, list[RemoteLogEntry]] = {}
    for manifest in sorted(manifests, key=lambda one: (one.event_timestamp_ms, one.segment_id)):
        segment = manifest.remote_segment
        at = metadata_partition_of(
            TopicIdPartition(segment.id.topic_id, segment.id.partition), METADATA_PARTITIONS
        )
        finished = RemoteSegmentUpdate(
            id=segment.id,
            event_timestamp_ms=segment.event_timestamp_ms,
            custom_metadata=segment.custom_metadata,
            state=RemoteSegmentState.COPY_FINISHED,
            broker_id=segment.broker_id,
        )
        started = replace(segment, state=RemoteSegmentState.COPY_STARTED)
        for record in (started, finished):
            found.setdefault(at, []).extend(encode_record(manifest.topic, record))
    return found


async def write_adopted_logs(
    disk: Disk,
    store: ObjectStore,
    log_dir: str,
    logs: Mapping[TopicPartition, tuple[UUID, StoredPartition]],
    entries: Mapping[int, Sequence[RemoteLogEntry]],
    metadata_topic_id: UUID,
) -> None:
    """Write the logs of one broker: those in `logs`, without their records, and the partitions of
    the topic `__remote_log_metadata` in `entries`.

    Raises CorruptDataError if an index in the bucket is damaged, and StoreError if the object store
    fails."""
    topic_ids = {at: topic_id for at, (topic_id, _) in logs.items()}
    starts = {at: log.start_offset for at, (_, log) in logs.items()}
    ends = {at: log.end_offset for at, (_, log) in logs.items()}
    for at, (topic_id, log) in logs.items():
        opened = await _open(disk, f"{log_dir}/{at.topic}-{at.partition}", topic_id)
        snapshot = await read_index(store, log.pieces[-1].manifest, IndexKind.PRODUCERS)
        await opened.begin_at(
            log.end_offset,
            log_start_offset=log.start_offset,
            epochs=log.epochs,
            producer_snapshot=snapshot,
            now_ms=_now_ms(),
        )
        await opened.close()
    for partition, rows in entries.items():
        at = TopicPartition(REMOTE_METADATA_TOPIC, partition)
        opened = await _open(disk, f"{log_dir}/{at.topic}-{partition}", metadata_topic_id)
        for first in range(0, len(rows), ENTRIES_PER_BATCH):
            batch = build_batch(
                [(_now_ms(), *one) for one in rows[first : first + ENTRIES_PER_BATCH]]
            )
            opened.append_as_leader(
                memoryview(batch),
                leader_epoch=Epoch(0),
                now_ms=_now_ms(),
                origin=AppendOrigin.COORDINATOR,
            )
        topic_ids[at], starts[at], ends[at] = metadata_topic_id, Offset(0), opened.end_offset
        await opened.close()
    await write_checkpoints(disk, log_dir, topic_ids, starts=starts, ends=ends)


async def _open(disk: Disk, directory: str, topic_id: UUID) -> Log:
    return await open_log(
        disk,
        directory,
        config=LogConfig(),
        topic_id=topic_id,
        is_clean=False,
        recovery_point=Offset(0),
        log_start_offset=Offset(0),
        now_ms=_now_ms(),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
