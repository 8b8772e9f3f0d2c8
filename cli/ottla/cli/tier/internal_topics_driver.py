"""Creates the internal topics of a restored cluster: their metadata records, and the logs in the
log directories of brokers."""

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.cli.tier.restored_files_driver import CheckpointedLogs
from ottla.metadata.directories import UNASSIGNED
from ottla.metadata.image import PartitionState
from ottla.metadata.records import (
    TOPIC_RESOURCE,
    Record,
    config_record,
    partition_record,
    topic_record,
)
from ottla.model.ids import Epoch, NodeId, Offset, TopicPartition
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.log.log import Log, open_log
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from ottla.wire.messages.create_topics_request import CreatableTopic

ENTRIES_PER_BATCH = 100

Entry = tuple[bytes, bytes | None]
"""Key and value of one record of an internal topic."""


class InternalLogs(NamedTuple):
    """Records of an internal topic for one log directory, by partition."""

    topic: str
    topic_id: UUID
    epochs: Mapping[int, Epoch]
    """Leader epochs of the records by partition. A partition without an entry has epoch 0."""
    entries: Mapping[int, Sequence[Entry]]


class RestoredInternalTopic(NamedTuple):
    """An internal topic of a restored cluster: its specification, its id, the placement of its
    replicas, and its records."""

    specification: CreatableTopic
    topic_id: UUID
    brokers: Sequence[NodeId]
    entries: Mapping[int, Sequence[Entry]]
    """Keys and values of the topic's records, by partition."""
    epochs: Mapping[int, Epoch] = {}
    """Leader epochs that the topic's partitions had in the former cluster. A partition without an
    entry begins with epoch 0."""

    def replicas(self, partition: int) -> tuple[NodeId, ...]:
        """Return the ids of the brokers with a replica of a partition. The first broker is the
        preferred leader."""
        count = len(self.brokers)
        factor = self.specification.replication_factor
        return tuple(self.brokers[(partition + at) % count] for at in range(factor))

    def first_records(self) -> list[Record]:
        """Return the cluster metadata records that create the topic."""
        name = self.specification.name
        records = [topic_record(name, self.topic_id)]
        for partition in range(self.specification.num_partitions):
            replicas = self.replicas(partition)
            state = PartitionState(
                replicas=replicas,
                directories=(UNASSIGNED,) * len(replicas),
                isr=replicas,
                leader_epoch=self.epochs.get(partition, Epoch(0)),
            )
            records.append(partition_record(self.topic_id, partition, state))
        return records + [
            config_record(TOPIC_RESOURCE, name, one.name, one.value)
            for one in self.specification.configs
        ]

    def logs_of(self, broker: NodeId, directory: int = 0, directory_count: int = 1) -> InternalLogs:
        """Return the records that one log directory of a broker must contain."""
        return InternalLogs(
            self.specification.name,
            self.topic_id,
            self.epochs,
            {
                partition: rows
                for partition, rows in self.entries.items()
                if broker in self.replicas(partition) and partition % directory_count == directory
            },
        )


async def write_internal_logs(
    disk: Disk, log_dir: str, topics: Sequence[InternalLogs], checkpointed: CheckpointedLogs
) -> None:
    """Write the logs of internal topics into a log directory, and add the logs to the directory's
    checkpoints."""
    for topic in topics:
        for partition, rows in topic.entries.items():
            at = TopicPartition(topic.topic, partition)
            opened = await open_new_log(disk, f"{log_dir}/{at.topic}-{partition}", topic.topic_id)
            for first in range(0, len(rows), ENTRIES_PER_BATCH):
                batch = build_batch(
                    [(now_ms(), *one) for one in rows[first : first + ENTRIES_PER_BATCH]]
                )
                opened.append_as_leader(
                    memoryview(batch),
                    leader_epoch=topic.epochs.get(partition, Epoch(0)),
                    now_ms=now_ms(),
                    origin=AppendOrigin.COORDINATOR,
                )
            checkpointed.add(
                at, topic.topic_id, start_offset=Offset(0), end_offset=opened.end_offset
            )
            await opened.close()


async def open_new_log(disk: Disk, directory: str, topic_id: UUID) -> Log:
    """Create an empty log in a directory, and open it."""
    return await open_log(
        disk,
        directory,
        config=LogConfig(),
        topic_id=topic_id,
        is_clean=False,
        recovery_point=Offset(0),
        log_start_offset=Offset(0),
        now_ms=now_ms(),
    )


def now_ms() -> int:
    """Return the present time in ms since 1970."""
    return time.time_ns() // 1_000_000
