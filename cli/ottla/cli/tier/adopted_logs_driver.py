"""Writer of empty logs for partitions of a new broker whose records stay in the bucket.

Each log begins where its copied records end. It equals the log of a new replica whose leader has
older records only in the object store (KIP-405). The metadata of the copied segments is written
into the partitions of `__remote_log_metadata`, so that the first leader can read the bucket at
once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from ottla.broker.tier.metadata_topic import metadata_partition_of, remote_metadata_topic
from ottla.cli.tier.internal_topics_driver import (
    Entry,
    RestoredInternalTopic,
    now_ms,
    open_new_log,
)
from ottla.cli.tier.restored_files_driver import CheckpointedLogs
from ottla.model.ids import NodeId, TopicIdPartition, TopicPartition
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.tier.bucket_driver import read_index
from ottla.storage.tier.manifest import IndexKind, SegmentManifest
from ottla.storage.tier.remote_records import encode_record
from ottla.storage.tier.remote_segment import RemoteSegmentState, RemoteSegmentUpdate
from ottla.storage.tier.store_seam import ObjectStore
from ottla.storage.tier.stored_partition import StoredPartition

METADATA_PARTITIONS = 50
"""Number of partitions of the topic `__remote_log_metadata`. It is Kafka's default."""


def restored_metadata_topic(
    manifests: Iterable[SegmentManifest],
    *,
    topic_id: UUID,
    brokers: Sequence[NodeId],
    replication_factor: int,
    min_insync_replicas: int,
) -> RestoredInternalTopic:
    """Return the topic `__remote_log_metadata` of a restored cluster, with the records about the
    segments in the bucket."""
    return RestoredInternalTopic(
        remote_metadata_topic(
            partition_count=METADATA_PARTITIONS,
            replication_factor=replication_factor,
            min_insync_replicas=min_insync_replicas,
        ),
        topic_id,
        brokers,
        _entries_of(manifests),
    )


def _entries_of(manifests: Iterable[SegmentManifest]) -> dict[int, list[Entry]]:
    """Return the records about copied segments by partition of `__remote_log_metadata`."""
    found: dict[int, list[Entry]] = {}
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
            found.setdefault(at, []).extend(
                (one.key, one.value) for one in encode_record(manifest.topic, record)
            )
    return found


async def write_adopted_logs(
    disk: Disk,
    store: ObjectStore,
    log_dir: str,
    logs: Mapping[TopicPartition, tuple[UUID, StoredPartition]],
    checkpointed: CheckpointedLogs,
) -> None:
    """Write empty logs into a log directory for partitions whose records stay in the bucket, and
    add the logs to the directory's checkpoints. Raises CorruptDataError if an index in the bucket
    is damaged, and StoreError if the object store fails."""
    for at, (topic_id, log) in logs.items():
        opened = await open_new_log(disk, f"{log_dir}/{at.topic}-{at.partition}", topic_id)
        snapshot = await read_index(store, log.pieces[-1].manifest, IndexKind.PRODUCERS)
        await opened.begin_at(
            log.end_offset,
            log_start_offset=log.start_offset,
            epochs=log.epochs,
            producer_snapshot=snapshot,
            now_ms=now_ms(),
        )
        await opened.close()
        checkpointed.add(at, topic_id, start_offset=log.start_offset, end_offset=log.end_offset)
