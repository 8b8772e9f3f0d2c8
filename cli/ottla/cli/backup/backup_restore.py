"""Writes a backup into a cluster in which none of its topics exists.

Records get new offsets from 0, without the gaps of compaction and transactions. Committed offsets
of groups are translated, so that each refers to the same record as before.
"""

from pathlib import Path

import trio

from ottla.cli.backup.backup_files import (
    Manifest,
    StoredTopic,
    positions_of,
    read_records,
    records_path,
    verify,
)
from ottla.client.admin import Admin
from ottla.client.produce.delivery import Delivery
from ottla.client.producer import Producer
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.wire.offset_timestamps import LATEST

IN_FLIGHT_MAX = 10_000
"""Maximum number of restored records that wait for the broker's acknowledgement at the same
time."""


async def restore_backup(
    admin: Admin,
    producer: Producer,
    directory: Path,
    manifest: Manifest,
    replication_factor: int | None,
) -> None:
    """Create the topics of a backup, write their records, and commit the offsets of its groups.

    Raises CorruptDataError if a file is damaged, and RefusedError if a topic already exists. In
    both cases, nothing is changed.
    """
    await trio.to_thread.run_sync(verify, directory, manifest)
    present = set(await admin.list_topics())
    for topic in manifest.topics:
        if topic.name in present:
            raise RefusedError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"topic {topic.name!r} exists; restore into a cluster without it, or delete it",
            )
    for topic in manifest.topics:
        await admin.create_topic(
            topic.name,
            partition_count=len(topic.counts),
            replication_factor=replication_factor or topic.replication_factor,
            configs=topic.configs,
        )
        for partition in range(len(topic.counts)):
            await _write(producer, directory, TopicPartition(topic.name, partition))
        await _check_ends(admin, topic)
    translated = await trio.to_thread.run_sync(_translations, directory, manifest)
    for group, topics in manifest.groups.items():
        offsets = {
            at: translated[at][offset]
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
            for at in (TopicPartition(topic, int(partition)),)
        }
        await admin.alter_group_offsets(group, offsets)


async def _write(producer: Producer, directory: Path, at: TopicPartition) -> None:
    """Write the backed-up records of one partition into the cluster, in their order and with their
    timestamps."""
    waiting: list[Delivery] = []
    for batch in read_records(records_path(directory, at.topic, at.partition)):
        for record in batch:
            waiting.append(
                await producer.send(
                    at.topic,
                    record.value,
                    key=record.key,
                    partition=at.partition,
                    headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                )
            )
            if len(waiting) >= IN_FLIGHT_MAX:
                await _acknowledged(waiting)
    await _acknowledged(waiting)


async def _acknowledged(waiting: list[Delivery]) -> None:
    for delivery in waiting:
        await delivery
    waiting.clear()


async def _check_ends(admin: Admin, topic: StoredTopic) -> None:
    """Raise CorruptDataError if a partition of the restored topic does not have all records of the
    backup."""
    for partition, count in enumerate(topic.counts):
        at = TopicPartition(topic.name, partition)
        end = (await admin.list_offsets({at: LATEST}))[at].offset
        if end != count:
            raise CorruptDataError(f"{at} ends at {end} after the restore, and not at {count}")


def _translations(directory: Path, manifest: Manifest) -> dict[TopicPartition, dict[int, int]]:
    """Return the new offset in the restored topic for each committed offset in the backup, by
    partition."""
    wanted: dict[TopicPartition, set[int]] = {}
    for topics in manifest.groups.values():
        for topic, offsets in topics.items():
            for partition, offset in offsets.items():
                wanted.setdefault(TopicPartition(topic, int(partition)), set()).add(offset)
    return {
        at: positions_of(offsets, read_records(records_path(directory, *at)))
        for at, offsets in wanted.items()
    }
